"""Tests of `ucds.math.questions`: the pairs of clusters that are hardest to tell apart are asked about."""

from __future__ import annotations

import numpy as np

from ucds.math.exemplars import find_exemplars
from ucds.math.questions import choose_questions


def test_the_clusters_that_overlap_most_are_asked_about_first() -> None:
    # Clusters 0 and 2 are half in each other, 1 and 3 a little, all else not at all; cluster 4 is empty.
    rows = [[0.6, 0, 0.4, 0, 0], [0, 0.9, 0, 0.1, 0], [0.4, 0, 0.6, 0, 0], [0, 0.1, 0, 0.9, 0]]
    probabilities = np.repeat(np.array(rows, dtype=np.float32), 3, axis=0)
    features = np.repeat(np.eye(4, dtype=np.float32), 3, axis=0)
    exemplars = find_exemplars(features, probabilities, 3)
    assert choose_questions(probabilities, exemplars).tolist() == [[0, 6], [3, 9]]
    assert choose_questions(probabilities, exemplars, most=1).tolist() == [[0, 6]]


def test_clusters_that_do_not_overlap_raise_no_question() -> None:
    probabilities = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    exemplars = find_exemplars(probabilities, probabilities, 3)
    assert choose_questions(probabilities, exemplars).shape == (0, 2)
