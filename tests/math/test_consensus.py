"""Tests of the vote of k-means partitions: co-association, the partition that votes agree on, starts."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import (
    USUAL,
    Memberships,
    Partition,
    Vote,
    average_linkage,
    average_tree,
    blend,
    cluster_by_vote,
    inertias,
    join_samples,
    match,
    mean_shares,
    memberships,
    refine,
    settle,
)
from ucds.math.domain_transport import cluster_domains
from ucds.math.kmeans import run_kmeans
from ucds.math.spaces import make_spaces, mutual_neighbours, unit_rows

N, K = 120, 4
TRUTH = np.arange(N) % K


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(truth: Partition = TRUTH, noise: float = 0.1, width: int = 8) -> FloatArray:
    vectors = np.eye(width)[truth] + noise * rng().normal(size=(len(truth), width))
    return (vectors + 0.5).astype(np.float32)


BLOBS = blobs()


def spaces_of(vectors: FloatArray, n_clusters: int = K, **options: Any) -> list[FloatArray]:
    return list(make_spaces(vectors, n_clusters, **options).vectors.values())


def votes(vectors: FloatArray, n_clusters: int = K, seed: int = 0, starts: int = 2) -> Vote:
    return cluster_by_vote(
        spaces_of(vectors, n_clusters), n_clusters, rng(seed), choices=USUAL.with_starts(starts)
    )


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


def whole_tree(votes: Memberships) -> np.ndarray:
    """The tree of average linkage, by the whole matrix."""
    distances = np.maximum(1 - dense(votes), 0)
    np.fill_diagonal(distances, 0)
    return np.asarray(linkage(squareform(distances, checks=False), "average"))


def some_of(most: int, seed: int = 0, n: int = N) -> IntArray:
    return np.sort(rng(seed).permutation(n)[:most])


def test_co_association_is_the_share_of_partitions_that_put_two_samples_together() -> None:
    finer, repeated = [TRUTH + K * (np.arange(N) % 3), 10 * NOISY[0]], NOISY[:2]
    partitions = [*NOISY, *finer, *repeated]
    np.testing.assert_allclose(dense(memberships(partitions)), together(partitions), atol=1e-6)
    bytewise = [(90 * partition).astype(np.uint8) for partition in NOISY]  # in all more than fit into a byte
    np.testing.assert_allclose(dense(memberships(bytewise)), together(NOISY), atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.7, 1.0])
def test_blending_averages_co_associations(weight: float) -> None:
    blended = dense(blend(memberships(NOISY[:4]), memberships(NOISY[4:]), weight))
    expected = (1 - weight) * together(NOISY[:4]) + weight * together(NOISY[4:])
    np.testing.assert_allclose(blended, expected, atol=1e-6)


def test_without_ties_groups_and_their_numbers_are_those_of_a_cut_at_one_height() -> None:
    for seed in range(5):
        joined = sparse.csr_array(unit_rows(rng(seed).random((40, 9)).astype(np.float32)))
        tree = whole_tree(joined)
        assert len(np.unique(tree[:, 2])) == len(tree)
        for n_clusters in (1, 2, 3, 7, 20, 39, 40):
            expected = fcluster(tree, n_clusters, "maxclust") - 1
            np.testing.assert_array_equal(average_linkage(joined, n_clusters, rng()), expected)


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("representatives", [60, 30])
def test_k_groups_come_out_where_many_merges_have_one_height(groups: int, representatives: int) -> None:
    """All votes agree fully, so that samples are joined at height 0, and groups at height 1."""
    truth = np.arange(60) % groups
    joined = memberships([rng(seed).permutation(groups)[truth] for seed in range(5)])
    for n_clusters in (1, 2, 4, 5, 8):
        start = join_samples(joined, n_clusters, some_of(representatives, n=60))
        found = refine(joined, start, n_clusters)
        assert set(found) == set(range(n_clusters))
        merged, parts = (truth, found) if n_clusters < groups else (found, truth)
        assert all(len(set(parts[merged == group])) == 1 for group in set(merged))


def test_refinement_compares_each_sample_with_all_clusters_in_every_round() -> None:
    """And tells the mean co-association of all samples with their own clusters."""
    joined = sparse.csr_array(unit_rows(rng(5).random((N, 9)).astype(np.float32)))  # without ties
    table, start = dense(joined), rng(6).integers(7, size=N)
    for rounds in (0, 1, 2, 30):
        expected = start
        for _ in range(rounds):
            expected = np.stack([table[:, expected == k].mean(1) for k in range(7)], 1).argmax(1)
        found, agreement = settle(joined, start, 8, rounds)  # the eighth is empty
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(refine(joined, start, 8, rounds), expected)
        own = [table[i, expected == cluster].mean() for i, cluster in enumerate(expected)]
        assert agreement == pytest.approx(np.mean(own), abs=1e-5)


def test_inertia_is_the_distance_from_the_means() -> None:
    vectors = (3 + rng(1).normal(size=(N, 5))).astype(np.float32)
    expected = sum(((vectors[k == TRUTH] - vectors[k == TRUTH].mean(0)) ** 2).sum() for k in range(K))
    kmeans = KMeans(K, n_init=1, random_state=0).fit(vectors)
    found = inertias(vectors, [TRUTH, kmeans.labels_.astype(np.int64)], K)
    assert found == pytest.approx([expected, kmeans.inertia_], rel=1e-4)
    assert inertias(vectors, [TRUTH], K + 3) == found[:1]  # clusters without members


@pytest.mark.parametrize("seed", [100, 104])  # two, as not every step matters in each
def test_the_consensus_is_the_best_candidate_of_steps_a_to_c(seed: int) -> None:
    draw, spaces = rng(), spaces_of(rng(seed).normal(size=(N, 8)).astype(np.float32))
    found = cluster_by_vote(spaces, K, rng(), choices=USUAL.with_starts(2))
    runs = run_kmeans(spaces, [K, 5, 6, 2 * K], 2, draw)
    every = [run.partition for same in runs for run in same]
    tightest = [min(same, key=lambda run: run.inertia).partition for same in runs]
    halves = [[every[i] for i in draw.choice(32, 16, replace=False)] for _ in range(24)]
    candidates = []
    for votes in map(memberships, [tightest, *halves]):
        joined = join_samples(votes, K, np.sort(draw.choice(N, 2 * N // 3, replace=False)))
        candidates.append(settle(memberships(every), refine(votes, joined, K, rounds=2), K))
    partitions, agreement = zip(*candidates, strict=True)
    loose = np.array([inertias(space, partitions, K) for space in spaces])
    loose /= loose.min(1, keepdims=True)
    looseness = (loose.mean(0) + loose[-1]) / 2
    np.testing.assert_array_equal(found.partition, partitions[np.argmax(agreement / looseness**6)])


def test_every_space_votes_into_several_numbers_of_clusters_the_first_of_which_is_k() -> None:
    found = votes(BLOBS)
    assert len(found.by_space) == 4
    for space in found.by_space:
        assert [len(np.unique(one)) for one in space] == [4, 4, 5, 5, 6, 6, 8, 8]
    joined = [one for space in found.by_space for one in space]
    np.testing.assert_array_equal(found.memberships.toarray(), memberships(joined).toarray())


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_partitions_of_few_samples_are_no_finer_than_two_samples_a_cluster() -> None:
    for space in votes(BLOBS[:10], starts=1).by_space:
        assert [int(one.max()) + 1 for one in space] == [4, 5, 5, 5]
    spaces = spaces_of(BLOBS[:K], names=("features",))
    (space,) = cluster_by_vote(spaces, K, rng(), choices=USUAL.with_starts(1)).by_space
    assert all(sorted(one) == list(range(K)) for one in space)


def test_few_samples_have_more_starts() -> None:
    assert [USUAL.starts(n) for n in (50, 1500, 50_000)] == [20, 10, 4]


@pytest.mark.parametrize("n", [2, 500, 1100])  # one block, and several
def test_the_tree_is_that_of_all_distances_at_once(n: int) -> None:
    rng = np.random.default_rng(n)
    found = memberships([rng.integers(0, max(2, n // 9), n) for _ in range(20)])
    np.testing.assert_array_equal(average_tree(found), whole_tree(found))


def test_copies_make_no_noise() -> None:
    copies = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    with warnings.catch_warnings(action="error"):
        assert adjusted_rand_score(np.arange(30) // 10, votes(copies, 3, starts=1).partition) == 1


def test_samples_that_a_run_does_not_see_get_the_nearest_centre() -> None:
    truth = np.arange(3100) % 2
    blob = (10 * np.eye(2)[truth] + 0.1 * rng().normal(size=(3100, 2))).astype(np.float32)
    found = cluster_by_vote(spaces_of(blob, 2, names=("features",)), 2, rng(), choices=USUAL.with_starts(1))
    assert adjusted_rand_score(truth, found.by_space[0][0]) == 1
    assert adjusted_rand_score(truth, found.partition) == 1


def test_spaces_are_compared_by_the_first_partition_of_each_or_by_all_of_a_single_one() -> None:
    other = np.where(np.arange(N) < 20, 0, TRUTH)
    several = Vote([[TRUTH, other], [3 - TRUTH, other]], memberships([TRUTH]), TRUTH, K)
    assert several.agreement == pytest.approx(1)
    single = Vote([[TRUTH, other]], memberships([TRUTH]), TRUTH, K)
    assert 0 < single.agreement < 1
    assert Vote([[TRUTH]], memberships([TRUTH]), TRUTH, K).agreement == 1  # nothing to compare with


def test_a_share_is_the_weight_of_the_partitions_that_put_a_sample_into_a_cluster() -> None:
    other = np.where(np.arange(N) == 0, 1, TRUTH)
    found = mean_shares([(TRUTH + 1) % K, other], np.array([0.75, 0.25]), TRUTH, K)
    assert found[0, :2].tolist() == pytest.approx([0.75, 0.25])
    np.testing.assert_allclose(found[1:], np.eye(K)[TRUTH[1:]], atol=1e-6)


def test_a_cluster_without_counterpart_counts_for_all_clusters_alike() -> None:
    joined = np.where(TRUTH == 1, 0, TRUTH)  # groups 0 and 1 are one, and only one of them finds it
    found = mean_shares([TRUTH], np.ones(1), joined, K)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert sorted(found[TRUTH < 2].max(1).round(3).tolist())[0] == pytest.approx(1 / K, abs=1e-3)
    both = mean_shares([TRUTH, joined], np.array([0.5, 0.5]), joined, K)
    assert sorted(both[TRUTH < 2].max(1).round(3).tolist())[0] == pytest.approx(0.5 + 0.5 / K, abs=1e-3)


WORKS = ("find neighbours", "k-means", "find the consensus", "transport")


@pytest.mark.parametrize("last", WORKS)
def test_a_watch_is_told_of_all_parts_in_order_and_may_end_any_work(last: str) -> None:
    told: list[tuple[str, int, int]] = []

    def watch(work: str, done: int, total: int) -> None:
        told.append((work, done, total))
        if (work, done) == (last, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster_domains([BLOBS], K, rng(), choices=USUAL.with_starts(1), watch=watch)
    work, total, _ = told[-1]
    assert work == last
    assert [part for part in told if part[0] == last] == [(last, done, total) for done in range(total + 1)]


def test_neighbours_that_are_found_in_blocks_are_those_of_all_samples() -> None:
    vectors = rng().normal(size=(5000, 3)).astype(np.float32)
    found = mutual_neighbours(vectors, 4)
    whole = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(vectors).kneighbors_graph(vectors)
    assert ((found > 0) != (whole.minimum(whole.T) > 0)).nnz == 0


def test_pairs_by_hand() -> None:
    assert match(np.array([7, 7, 2, 2, 2]), np.array([0, 9, 9, 9, 4])) == {2: 9, 7: 0}  # names have gaps
    assert match(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 0])) == {0: 1, 1: 0}
    # Those without a common sample are no pairs.
    assert match(np.array([0, 0, 1]), np.array([3, 3, 3])) == {0: 3}
    assert match(np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 0])) == {0: 0}
