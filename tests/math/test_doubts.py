"""Questions lead from wrong clusters to right ones, and nothing changes without an answer."""

import warnings

import numpy as np
import pytest

from ucds.math.consensus import memberships
from ucds.math.corrections import Change
from ucds.math.doubts import Doubt, Doubts
from ucds.math.metrics import clustering_accuracy
from ucds.math.parts import cut_into_parts, halve

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
    return Doubts(votes, JOINED_AND_SPLIT, parts, 6)


def class_of(rows: np.ndarray) -> int:
    return int(np.bincount(TRUTH[rows]).argmax())


def change(doubts: Doubts, did: Change, doubt: Doubt, to: int | None = None) -> None:
    others = [np.flatnonzero(doubts.clusters == other) for other in doubt.others]
    with doubts.step():
        doubts.change(did, doubt.samples, others, np.flatnonzero(doubts.clusters == to), whole=doubt.whole)


def answer_by_truth(doubts: Doubts, doubt: Doubt) -> None:
    rest = np.setdiff1d(np.flatnonzero(doubts.clusters == doubt.cluster), doubt.samples)
    kind = class_of(doubt.samples)
    known = {other: class_of(np.flatnonzero(doubts.clusters == other)) for other in doubt.others}
    same = [other for other, found in known.items() if found == kind]
    if not doubt.whole and class_of(rest) == kind:
        change(doubts, "kept", doubt)
    elif same:
        change(doubts, "placed", doubt, same[0])
    else:
        change(doubts, "kept" if doubt.whole else "separated", doubt)


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
        answer_by_truth(doubts, doubts.ranked()[0])
    assert clustering_accuracy(doubts.clusters, TRUTH) >= 0.97


def test_no_question_comes_twice_and_the_questions_end() -> None:
    doubts, seen = start(), set()
    while ranked := doubts.ranked():
        doubt = ranked[0]
        asked = (doubt.samples.tobytes(), doubt.cluster, tuple(doubt.others))
        assert asked not in seen
        seen.add(asked)
        change(doubts, "kept", doubt)
    assert np.array_equal(doubts.clusters, JOINED_AND_SPLIT)


def test_a_cluster_of_two_equal_parts_is_asked_about_once() -> None:
    clusters = np.repeat([0, 1], [40, 20])
    votes = [np.repeat([0, 1, 2], 20), clusters, np.repeat([0, 1], [20, 40]), np.zeros(60, np.int64)]
    doubts = Doubts(memberships(votes), clusters, np.repeat([0, 1, 2], 20), 2)
    assert sum(doubt.whole for doubt in doubts.ranked()) == 2
    for _ in range(12):
        if ranked := doubts.ranked():
            change(doubts, "kept", ranked[0])
    assert not doubts.ranked()


def test_a_mixed_group_is_divided_for_questions_and_stays_in_its_cluster() -> None:
    doubts = Doubts(memberships(divided_votes()), JOINED_AND_SPLIT, JOINED_AND_SPLIT, 6)
    before = len(np.unique(doubts.parts))
    change(doubts, "mixed", next(one for one in doubts.ranked() if one.cluster == 0))
    assert np.array_equal(doubts.clusters, JOINED_AND_SPLIT)
    assert len(np.unique(doubts.parts)) > before


def test_of_two_joined_clusters_the_larger_one_keeps_its_number() -> None:
    doubts = start()
    for group, to, number in ((5, 0, 0), (0, 4, 0)):
        rows, target = (np.flatnonzero(doubts.clusters == cluster) for cluster in (group, to))
        doubts.change("placed", rows[:12], [], target[:12], whole=True)
        assert set(doubts.clusters[[*rows, *target]].tolist()) == {number}


def test_samples_of_several_parts_that_are_moved_become_a_part() -> None:
    doubts = start()
    parts, sizes = np.unique(doubts.parts, return_counts=True)
    smallest = parts[sizes.argmin()]
    inside, outside = np.flatnonzero(doubts.parts == smallest), np.flatnonzero(doubts.parts != smallest)
    moved = np.sort(np.concatenate([inside[:-1], outside[:1]]))  # as many as the part has samples
    doubts.change("placed", moved, [], np.flatnonzero(JOINED_AND_SPLIT == 3), whole=False)
    for part in np.unique(doubts.parts):
        assert len(np.unique(doubts.clusters[doubts.parts == part])) == 1


def test_a_sample_moved_by_hand_leaves_the_question_about_the_halves_of_its_part() -> None:
    doubts = Doubts(memberships(divided_votes()), JOINED_AND_SPLIT, JOINED_AND_SPLIT, 6)
    for _ in range(2):
        assert any(not doubt.whole and doubt.part == 0 for doubt in doubts.ranked())
        with doubts.step():
            doubts.change("placed", np.array([0]), [], np.flatnonzero(JOINED_AND_SPLIT == 3), whole=False)


def test_clusters_that_no_vote_keeps_together_are_asked_about_without_a_warning() -> None:
    votes = memberships([np.array([0, 0, 0, *np.roll(np.arange(6), i)]) for i in range(3)])
    clusters = np.repeat(np.arange(3), 3)
    doubts = Doubts(votes, clusters, clusters, 3)
    with warnings.catch_warnings(action="error"):
        assert all(np.isfinite(doubt.score) for doubt in doubts.ranked())


def test_steps_are_taken_back_one_by_one_with_all_that_is_known() -> None:
    doubts, before = start(), []
    for _ in range(4):
        before.append((doubts.clusters.copy(), doubts.parts.copy(), doubts.ranked()))
        answer_by_truth(doubts, doubts.ranked()[0])
    for clusters, parts, ranked in reversed(before):
        doubts.undo()
        assert np.array_equal(doubts.clusters, clusters)
        assert np.array_equal(doubts.parts, parts)
        for doubt, again in zip(ranked, doubts.ranked(), strict=True):
            assert np.array_equal(doubt.samples, again.samples)
            assert (doubt.others, doubt.score) == (again.others, again.score)


@pytest.mark.parametrize("least", [0.5, 3.0, 1e9])
def test_a_least_score_leaves_the_first_question_and_those_above_it_as_they_are(least: float) -> None:
    whole, short = start(), start()
    while ranked := whole.ranked():
        some = [(doubt.samples.tolist(), doubt.score) for doubt in short.ranked(least)]
        everything = [(doubt.samples.tolist(), doubt.score) for doubt in ranked]
        count = sum(score >= least for _, score in everything)
        assert some[: max(count, 1)] == everything[: max(count, 1)]
        assert len(some) <= len(everything)
        answer_by_truth(whole, ranked[0])
        answer_by_truth(short, ranked[0])


def test_halves_of_two_kinds_are_the_kinds() -> None:
    votes = memberships(divided_votes())
    found = halve(votes, np.flatnonzero(JOINED_AND_SPLIT == 0))
    assert found is not None
    second, relation = found
    assert len(np.unique(TRUTH[second])) == 1
    assert len(second) == 20
    assert 0 < relation < 0.7
    assert halve(votes, np.arange(5)) is None  # a few samples have no halves


def test_outliers_are_no_half() -> None:
    """Two samples are alone in all votes and three in most; the other 95 are of two kinds."""
    groups = np.repeat(np.arange(4), [50, 45, 3, 2])
    votes = [groups, groups, np.where(groups == 1, 0, groups), np.repeat([0, 1], [95, 5])]
    found = halve(memberships(votes), np.arange(100))
    assert found is not None
    assert set(groups[found[0]].tolist()) >= {1}
    assert len(found[0]) >= 45


def test_groups_that_are_two_are_not_asked_about_again_from_the_other_side() -> None:
    doubts = Doubts(memberships(divided_votes()), JOINED_AND_SPLIT, JOINED_AND_SPLIT, 6)
    doubt = next(one for one in doubts.ranked() if one.whole and one.others)
    change(doubts, "kept", doubt)
    for again in doubts.ranked():
        assert not (again.whole and again.cluster in doubt.others and doubt.cluster in again.others)


def test_the_half_that_the_votes_keep_apart_more_is_asked_about_first() -> None:
    """In half of the votes cluster 0 is two groups, and in a sixth of them cluster 1."""
    clusters, second = np.repeat([0, 1], 40), np.arange(80) % 2
    votes = [clusters + 2 * second * (clusters == 0) * (i % 2) for i in range(6)]
    votes[0] = votes[0] + 4 * second * (clusters == 1)
    halves = [one for one in Doubts(memberships(votes), clusters, clusters, 2).ranked() if not one.whole]
    assert [one.cluster for one in halves] == [0, 1]


def test_the_likeliest_cluster_is_offered_first() -> None:
    """Of four votes, one joins cluster 0 with 1, and two join it with 2."""
    clusters = np.repeat([0, 1, 2], 20)
    votes = [clusters, *(np.where(clusters == joined, 0, clusters) for joined in (1, 2, 2))]
    doubts = Doubts(memberships(votes), clusters, clusters, 3).ranked()
    assert next(one.others for one in doubts if one.cluster == 0) == [2, 1]


def test_what_is_proposed_is_asked_about_before_all_others_until_it_is_answered() -> None:
    """Samples in no cluster come first, then the largest group. Of the first two, nothing would change."""
    clusters = JOINED_AND_SPLIT.copy()
    clusters[60:64] = -1
    two, four, five = (np.flatnonzero(clusters == cluster) for cluster in (2, 4, 5))
    doubts = Doubts(memberships(divided_votes()), clusters, JOINED_AND_SPLIT, 6)
    doubts.proposed = [(np.arange(5), 0), (two, 9), (five, 4), (np.arange(20, 40), 6), (np.arange(60, 64), 3)]
    alone, part, whole, *others = doubts.ranked()
    assert not any(doubt.is_proposed for doubt in others)
    assert (alone.cluster, alone.whole, alone.others[0], alone.is_proposed) == (-1, False, 3, True)
    assert (part.cluster, part.whole, part.is_proposed) == (0, False, False)  # but as a new cluster
    assert (whole.cluster, whole.whole, whole.others[0], whole.is_proposed) == (5, True, 4, True)
    change(doubts, "kept", whole)
    doubts.proposed = [*doubts.proposed, (four, 5)]  # which was answered from the other side
    assert [doubt.cluster for doubt in doubts.ranked()[:2]] == [-1, 0]
    assert not any(doubt.is_proposed for doubt in doubts.ranked()[1:])
