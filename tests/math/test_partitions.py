"""Tests of partitions: k-means in several spaces, co-association, and the partition that votes agree on."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from ucds.math.partitions import (
    Memberships,
    Partition,
    affinities,
    blend,
    consensus,
    inertia,
    match,
    mean_coassociation,
    memberships,
    refine,
    share_unmatched,
)
from ucds.math.spaces import unit_rows

N, K = 120, 4
TRUTH = np.arange(N) % K


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noisy(share: float, seed: int) -> Partition:
    """The truth, with new names, and a share of the samples anywhere."""
    draw = rng(seed)
    partition = draw.permutation(K)[TRUTH]
    lost = draw.random(N) < share
    partition[lost] = draw.integers(K, size=int(lost.sum()))
    return partition


NOISY = [noisy(0.2, seed) for seed in range(7)]


def together(partitions: list[Partition]) -> np.ndarray:
    """The share of partitions that put two samples into one cluster, counted one by one."""
    return np.mean([partition[:, None] == partition for partition in partitions], axis=0)


def dense(votes: Memberships) -> np.ndarray:
    return np.asarray((votes @ votes.T).toarray())


def agreed(partitions: list[Partition], n_clusters: int = K, seed: int = 0, **given: int) -> Partition:
    return consensus(memberships(partitions), n_clusters, rng(seed), **given)


def test_co_association_is_the_share_of_partitions_that_put_two_samples_together() -> None:
    finer = [TRUTH + K * (np.arange(N) % 3), 10 * NOISY[0]]
    votes = memberships([*NOISY, *finer])
    np.testing.assert_allclose(dense(votes), together([*NOISY, *finer]), atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.7, 1.0])
def test_blending_averages_co_associations(weight: float) -> None:
    blended = dense(blend(memberships(NOISY[:4]), memberships(NOISY[4:]), weight))
    expected = (1 - weight) * together(NOISY[:4]) + weight * together(NOISY[4:])
    np.testing.assert_allclose(blended, expected, atol=1e-6)


def test_affinities_are_means_over_members() -> None:
    votes, table = memberships(NOISY), together(NOISY)
    expected = np.stack([table[:, k == TRUTH].mean(1) for k in range(K)], 1)
    np.testing.assert_allclose(affinities(votes, TRUTH, K), expected, atol=1e-5)
    rows = np.flatnonzero(TRUTH != 2)  # a cluster without members
    expected = np.stack(
        [table[:, rows[TRUTH[rows] == k]].mean(1) if k != 2 else np.zeros(N) for k in range(K)], 1
    )
    np.testing.assert_allclose(affinities(votes, TRUTH[rows], K, rows), expected, atol=1e-5)


@pytest.mark.parametrize("votes", [1, 6])
def test_the_consensus_of_equal_partitions_is_that_partition_whatever_its_names(votes: int) -> None:
    found = agreed([rng(seed).permutation(K)[TRUTH] for seed in range(votes)])
    assert found.dtype == np.int64
    assert adjusted_rand_score(TRUTH, found) == 1
    assert set(found) == set(range(K))


def test_the_consensus_is_better_than_any_voter() -> None:
    assert max(adjusted_rand_score(TRUTH, partition) for partition in NOISY) < 0.8
    assert adjusted_rand_score(TRUTH, agreed(NOISY)) > 0.95


def test_groups_are_those_of_average_linkage_on_the_whole_matrix() -> None:
    votes = sparse.csr_array(unit_rows(rng(1).random((N, 9)).astype(np.float32)))  # no two pairs are alike
    table = dense(votes).astype(np.float64)
    np.fill_diagonal(table, 1)
    tree = linkage(squareform(1 - table, checks=False), "average")
    for n_clusters in (2, 5, 30):
        expected = fcluster(tree, n_clusters, "maxclust")
        found = consensus(votes, n_clusters, rng(), refinements=0)
        assert adjusted_rand_score(expected, found) == 1


def test_without_ties_groups_and_their_numbers_are_those_of_a_cut_at_one_height() -> None:
    for seed in range(5):
        votes = sparse.csr_array(unit_rows(rng(seed).random((40, 9)).astype(np.float32)))
        distances = np.maximum(1 - dense(votes), 0)
        np.fill_diagonal(distances, 0)
        tree = linkage(squareform(distances, checks=False), "average")
        assert len(np.unique(tree[:, 2])) == len(tree)
        for n_clusters in (1, 2, 3, 7, 20, 39, 40):
            expected = fcluster(tree, n_clusters, "maxclust") - 1
            np.testing.assert_array_equal(consensus(votes, n_clusters, rng(), refinements=0), expected)


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("representatives", [60, 30])
def test_k_groups_come_out_where_many_merges_have_one_height(groups: int, representatives: int) -> None:
    """All votes agree fully, so that samples are joined at height 0, and groups at height 1."""
    truth = np.arange(60) % groups
    votes = [rng(seed).permutation(groups)[truth] for seed in range(5)]
    for n_clusters in (1, 2, 4, 5, 8):
        found = agreed(votes, n_clusters, representatives=representatives)
        assert set(found) == set(range(n_clusters))
        merged, parts = (truth, found) if n_clusters < groups else (found, truth)
        assert all(len(set(parts[merged == group])) == 1 for group in set(merged))


def test_refinement_never_lowers_the_mean_co_association() -> None:
    """Samples are counted with the group they are in: the sum over groups of pairs, over the group's size."""
    draw = rng(2)
    partitions = [draw.integers(5, size=N) for _ in range(9)] + NOISY[:3]
    table = together(partitions)

    def objective(partition: Partition) -> float:
        groups = [partition == k for k in np.unique(partition)]
        return float(sum(table[np.ix_(group, group)].sum() / group.sum() for group in groups))

    found = [agreed(partitions, refinements=rounds) for rounds in range(6)]
    values = [objective(partition) for partition in found]
    assert values[0] < values[-1]
    assert all(later >= earlier - 1e-4 for earlier, later in pairwise(values))
    final = agreed(partitions)
    np.testing.assert_array_equal(affinities(memberships(partitions), final, K).argmax(1), final)


def test_refinement_stops_where_no_sample_moves() -> None:
    votes, wrong = memberships([TRUTH, 3 - TRUTH]), TRUTH.copy()
    wrong[:3] = 3
    np.testing.assert_array_equal(refine(votes, wrong, K), TRUTH)
    np.testing.assert_array_equal(refine(votes, wrong, K, rounds=0), wrong)


def test_comparing_only_changed_clusters_gives_the_same_bits() -> None:
    draw = rng(5)
    for rounds in (1, 2, 30):
        votes = sparse.csr_array(unit_rows(draw.random((N, 9)).astype(np.float32)))  # without ties
        found = expected = draw.integers(7, size=N)
        for _ in range(rounds):
            expected = affinities(votes, expected, 8).argmax(1)  # the eighth cluster is empty
        np.testing.assert_array_equal(refine(votes, found, 8, rounds), expected)
        own = affinities(votes, expected, 8)[np.arange(N), expected]
        assert mean_coassociation(votes, expected, 8) == float(own.mean())


def test_mean_co_association_is_that_of_members_of_one_cluster() -> None:
    same = (NOISY[0][:, None] == NOISY[0]) / np.bincount(NOISY[0])[NOISY[0]]
    expected = (together(NOISY) * same).sum(1).mean()
    assert mean_coassociation(memberships(NOISY), NOISY[0], K) == pytest.approx(expected, abs=1e-5)


def test_inertia_is_the_distance_from_the_means() -> None:
    vectors = (3 + rng(1).normal(size=(N, 5))).astype(np.float32)
    expected = sum(((vectors[k == TRUTH] - vectors[k == TRUTH].mean(0)) ** 2).sum() for k in range(K))
    assert inertia(vectors, TRUTH, K) == pytest.approx(expected, rel=1e-5)
    assert inertia(vectors, TRUTH, K + 3) == pytest.approx(expected, rel=1e-5)  # clusters without members
    found = KMeans(K, n_init=1, random_state=0).fit(vectors)
    assert inertia(vectors, found.labels_.astype(np.int64), K) == pytest.approx(found.inertia_, rel=1e-4)


def test_names_and_order_mean_nothing() -> None:
    found = agreed(NOISY)
    renamed = [rng(10 + i).permutation(K)[partition] for i, partition in enumerate(NOISY)]
    assert adjusted_rand_score(found, agreed(renamed)) == 1
    order = rng(3).permutation(N)
    moved = agreed([partition[order] for partition in NOISY])
    assert adjusted_rand_score(found[order], moved) == 1
    assert adjusted_rand_score(found, agreed(NOISY[::-1], seed=8)) == 1


def test_a_partition_listed_so_often_has_so_many_votes() -> None:
    other = (np.arange(N) // K) % K  # says nothing about the truth
    assert adjusted_rand_score(TRUTH, agreed([TRUTH, other, TRUTH, TRUTH])) == 1
    assert adjusted_rand_score(other, agreed([TRUTH, other, other, other])) == 1
    assert adjusted_rand_score(agreed(NOISY), agreed([*NOISY, *NOISY])) == 1


def test_partitions_of_two_cross_to_one_of_four_and_finer_ones_take_part() -> None:
    assert adjusted_rand_score(TRUTH, agreed([TRUTH // 2, TRUTH % 2])) == 1
    finer = 10 + TRUTH + K * (np.arange(N) % 3)
    assert adjusted_rand_score(TRUTH, agreed([finer, TRUTH, TRUTH])) == 1


def test_more_samples_than_representatives_give_the_same_groups() -> None:
    for seed in range(3):
        assert adjusted_rand_score(TRUTH, agreed(NOISY, seed=seed, representatives=40)) > 0.98
        renamed = [rng(i).permutation(K)[TRUTH] for i in range(3)]
        assert adjusted_rand_score(TRUTH, agreed(renamed, seed=seed, representatives=20)) == 1


def test_pairs_are_the_best_of_all_matchings() -> None:
    for seed in range(5):
        one, other = rng(seed).integers(5, size=40), rng(50 + seed).integers(5, size=40)
        pairs = match(one, other)
        agreeing = sum(int(((one == a) & (other == b)).sum()) for a, b in pairs.items())
        assert agreeing == max(int((np.array(names)[one] == other).sum()) for names in permutations(range(5)))
        assert len(set(pairs.values())) == len(pairs)


def test_pairs_without_a_common_sample_are_left_out() -> None:
    assert match(np.array([0, 0, 1]), np.array([3, 3, 3])) == {0: 3}
    assert match(np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 0])) == {0: 0}
    assert match(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 0])) == {0: 1, 1: 0}


def test_names_with_gaps_are_kept() -> None:
    assert match(np.array([7, 7, 2, 2, 2]), np.array([0, 9, 9, 9, 4])) == {2: 9, 7: 0}


@pytest.mark.parametrize(
    ("partition", "other", "share"),
    [
        (TRUTH, 7 - TRUTH, 0),
        (TRUTH, np.zeros(N, int), 1),  # one of four parts of the whole: F1 = 0.4
        (TRUTH, np.where(TRUTH == 3, 2, TRUTH), 0.25),  # two are one, which is the counterpart of one of them
        (np.where(TRUTH == 3, 2, TRUTH), TRUTH, 0),
        (TRUTH + K * (np.arange(N) // K % 2), TRUTH, 0.5),  # all are halved
        (TRUTH, np.arange(N), 1),
    ],
    ids=["renamed", "one cluster", "merged", "coarser", "halved", "single samples"],
)
def test_a_cluster_is_matched_by_a_half_or_more(partition: Partition, other: Partition, share: float) -> None:
    assert share_unmatched(partition, other) == pytest.approx(share)
