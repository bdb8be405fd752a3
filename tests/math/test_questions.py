"""Tests of `ucds.math.questions`: groups that may be one cluster, or two, are asked about."""

from __future__ import annotations

import numpy as np

from ucds.math.exemplars import find_exemplars
from ucds.math.questions import choose_questions


def test_the_clusters_that_overlap_most_are_asked_about_first() -> None:
    # Clusters 0 and 2 are half in each other, 1 and 3 a little, all else not at all; cluster 4 is empty.
    rows = [[0.6, 0, 0.4, 0, 0], [0, 0.9, 0, 0.1, 0], [0.4, 0, 0.6, 0, 0], [0, 0.1, 0, 0.9, 0]]
    probabilities = np.repeat(np.array(rows, dtype=np.float32), 3, axis=0)
    features = np.repeat(np.eye(4, dtype=np.float32), 3, axis=0)
    asked = choose_questions(features, probabilities, find_exemplars(features, probabilities, 3))
    assert [[group.tolist() for group in pair] for pair in asked] == [
        [[0, 1, 2], [6, 7, 8]],
        [[3, 4, 5], [9, 10, 11]],
    ]


def test_a_cluster_of_two_groups_is_asked_about_and_one_of_a_single_group_is_not() -> None:
    rng = np.random.default_rng(0)
    of = np.repeat([0, 1, 2], 20)  # groups; the first two are one cluster
    features = (np.eye(3, 8)[of] + 0.02 * rng.normal(size=(60, 8))).astype(np.float32)
    probabilities = np.eye(2, dtype=np.float32)[(of == 2).astype(int)]
    first, *others = choose_questions(features, probabilities, find_exemplars(features, probabilities, 3))
    assert [sorted(set(of[group].tolist())) for group in first] in ([[0], [1]], [[1], [0]])
    assert [len(group) for group in first] == [3, 3]
    assert all(set(of[one]) == set(of[other]) == {2} for one, other in others)
