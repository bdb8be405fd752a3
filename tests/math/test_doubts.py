"""Questions lead from wrong clusters to right ones, and nothing changes without an answer."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.math.consensus import memberships
from ucds.math.doubts import Doubt, Doubts, cut_into_parts, halve
from ucds.math.metrics import clustering_accuracy

TRUTH = np.repeat(np.arange(5), 20)
JOINED_AND_SPLIT = np.where(TRUTH == 1, 0, TRUTH)
JOINED_AND_SPLIT[TRUTH == 4] = np.where(np.arange(20) % 2, 4, 5)
"""Classes 0 and 1 are one cluster, and class 4 is two."""


def divided_votes(seed: int = 0) -> list[np.ndarray]:
    """Twelve votes, some for the wrong clusters and some for the classes; each has a few errors."""
    rng = np.random.default_rng(seed)
    votes = []
    for i in range(12):
        vote = (TRUTH if i % 3 else JOINED_AND_SPLIT).copy()
        vote[rng.choice(100, 5, replace=False)] = rng.integers(5, size=5)
        votes.append(vote)
    return votes


def start(seed: int = 0) -> Doubts:
    votes = memberships(divided_votes(seed))
    parts = cut_into_parts(votes, JOINED_AND_SPLIT, np.random.default_rng(0))
    return Doubts(votes, JOINED_AND_SPLIT, parts)


def first_of(doubts: Doubts) -> Doubt | None:
    return next(iter(doubts.ranked()), None)


def class_of(rows: np.ndarray) -> int:
    return int(np.bincount(TRUTH[rows]).argmax())


def answer_by_truth(doubts: Doubts, doubt: Doubt) -> None:
    rest = np.setdiff1d(np.flatnonzero(doubts.clusters == doubt.cluster), doubt.samples)
    if not doubt.whole and class_of(rest) == class_of(doubt.samples):
        doubts.keep(doubt)
        return
    for other in doubt.others:
        if class_of(np.flatnonzero(doubts.clusters == other)) == class_of(doubt.samples):
            doubts.move(doubt, other)
            return
    if doubt.whole:
        doubts.keep(doubt)
    else:
        doubts.separate(doubt, int(doubts.clusters.max()) + 1)


def test_parts_lie_in_one_cluster_each_and_have_three_samples() -> None:
    parts = cut_into_parts(memberships(divided_votes()), JOINED_AND_SPLIT, np.random.default_rng(0))
    for part in np.unique(parts):
        assert len(np.unique(JOINED_AND_SPLIT[parts == part])) == 1
        assert (parts == part).sum() >= 3


@pytest.mark.parametrize("seed", range(3))
def test_three_right_answers_nearly_give_the_classes(seed: int) -> None:
    doubts = start(seed)
    assert clustering_accuracy(doubts.clusters, TRUTH) == 0.7
    for _ in range(3):
        doubt = first_of(doubts)
        assert doubt is not None
        answer_by_truth(doubts, doubt)
    assert clustering_accuracy(doubts.clusters, TRUTH) >= 0.97


def test_asking_alone_changes_nothing() -> None:
    doubts = start()
    first, second = first_of(doubts), first_of(doubts)
    assert first is not None
    assert second is not None
    assert np.array_equal(first.samples, second.samples)
    assert np.array_equal(doubts.clusters, JOINED_AND_SPLIT)


def test_no_question_comes_twice_and_the_questions_end() -> None:
    doubts, seen = start(), set()
    while (doubt := first_of(doubts)) is not None:
        asked = (doubt.samples.tobytes(), doubt.cluster, doubt.others)
        assert asked not in seen
        seen.add(asked)
        doubts.keep(doubt)
    assert np.array_equal(doubts.clusters, JOINED_AND_SPLIT)


def test_a_mixed_group_is_divided_for_questions_and_stays_in_its_cluster() -> None:
    doubts = start()
    doubt = first_of(doubts)
    assert doubt is not None
    before = len(np.unique(doubts.parts))
    doubts.divide(doubt)
    assert np.array_equal(doubts.clusters, JOINED_AND_SPLIT)
    assert len(np.unique(doubts.parts)) >= before


def test_of_two_joined_clusters_the_larger_one_keeps_its_number() -> None:
    doubts = start()
    small = Doubt(np.flatnonzero(JOINED_AND_SPLIT == 5), doubts.core(5), 5, True, (0,), 1.0)
    doubts.move(small, 0)
    assert (doubts.clusters[JOINED_AND_SPLIT == 5] == 0).all()
    large = Doubt(np.flatnonzero(doubts.clusters == 0), doubts.core(0), 0, True, (4,), 1.0)
    doubts.move(large, 4)
    assert not (doubts.clusters == 4).any()


def test_a_restart_forgets_all_answers() -> None:
    doubts, first = start(), first_of(start())
    assert first is not None
    parts = doubts.parts.copy()
    for _ in range(4):
        doubt = first_of(doubts)
        assert doubt is not None
        answer_by_truth(doubts, doubt)
    doubts.restart(JOINED_AND_SPLIT, parts)
    again = first_of(doubts)
    assert again is not None
    assert np.array_equal(again.samples, first.samples)
    assert again.others == first.others


def test_halves_of_two_kinds_are_the_kinds() -> None:
    votes = memberships(divided_votes())
    found = halve(votes, np.flatnonzero(JOINED_AND_SPLIT == 0))
    assert found is not None
    second, relation = found
    assert len(np.unique(TRUTH[second])) == 1
    assert len(second) == 20
    assert 0 < relation < 0.7


def test_a_few_samples_have_no_halves() -> None:
    assert halve(memberships(divided_votes()), np.arange(5)) is None
