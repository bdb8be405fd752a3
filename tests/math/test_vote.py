"""Tests of the vote of clusterings in several spaces, and of its stability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from ucds.math.arrays import FloatArray
from ucds.math.kmeans import KMeansRun
from ucds.math.partitions import Partition, memberships
from ucds.math.spaces import make_spaces
from ucds.math.vote import (
    FINENESS,
    Stability,
    Vote,
    choose_consensus,
    resample,
    runs_by_space,
    tightest,
    vote,
)

N, K = 80, 4
TRUTH = np.arange(N) % K


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(truth: Partition = TRUTH, noise: float = 0.1, width: int = 8) -> FloatArray:
    vectors = np.eye(width)[truth] + noise * rng().normal(size=(len(truth), width))
    return (vectors + 0.5).astype(np.float32)


BLOBS, NOISE = blobs(), rng(1).normal(size=(N, 8)).astype(np.float32)


def votes(vectors: FloatArray, n_clusters: int = K, seed: int = 0, starts: int | None = 2) -> Vote:
    return vote(make_spaces(vectors, n_clusters), n_clusters, rng(seed), starts=starts)


def stability(vectors: FloatArray, found: Vote | None = None, **given: Any) -> tuple[Vote, Stability]:
    found = found or votes(vectors)
    joined = [one for space in found.spaces for one in space]
    others, weight = given.get("others"), given.get("weight", 0.0)
    return found, resample(joined, others, weight, found.partition, K, rng())


def test_every_space_votes_into_several_numbers_of_clusters_the_first_of_which_is_k() -> None:
    found = votes(BLOBS)
    assert len(found.spaces) == 4
    for space in found.spaces:
        assert [len(np.unique(one)) for one in space] == [4, 4, 5, 5, 6, 6, 8, 8]
    joined = [one for space in found.spaces for one in space]
    np.testing.assert_array_equal(found.memberships.toarray(), memberships(joined).toarray())
    assert FINENESS[0] == 1


def test_partitions_of_few_samples_are_no_finer_than_two_samples_a_cluster() -> None:
    (found,) = runs_by_space([BLOBS[:10]], K, rng(), starts=1)
    assert [int(run.partition.max()) + 1 for run in found] == [4, 5, 5, 5]
    (found,) = runs_by_space([BLOBS[:K]], K, rng(), starts=1)
    assert all(sorted(run.partition) == list(range(K)) for run in found)


@pytest.mark.parametrize(("n", "starts"), [(50, 20), (1500, 10)])
def test_few_samples_have_more_starts(n: int, starts: int) -> None:
    (found,) = runs_by_space([np.arange(n, dtype=np.float32)[:, None]], 2, rng())
    assert len(found) == starts * len(FINENESS)


def test_the_order_of_the_samples_means_nothing() -> None:
    order = rng(3).permutation(N)
    found = votes(BLOBS).partition
    assert adjusted_rand_score(TRUTH, found) == 1
    assert adjusted_rand_score(found[order], votes(BLOBS[order]).partition) == 1


def test_the_last_digits_of_features_change_nothing() -> None:
    moved = BLOBS + (1e-7 * rng(4).normal(size=BLOBS.shape)).astype(np.float32)
    assert adjusted_rand_score(votes(BLOBS).partition, votes(moved).partition) == 1


def test_few_unequal_clusters_are_found_where_single_starts_of_kmeans_miss_them() -> None:
    """Two large groups and four small ones: k-means splits a large one and joins two small ones."""
    truth = np.repeat(np.arange(6), [90, 60, 12, 10, 8, 8])
    vectors = blobs(truth, width=12)
    spaces = make_spaces(vectors, 6).vectors.values()
    single = [KMeans(6, n_init=1, random_state=s).fit_predict(space) for s in range(5) for space in spaces]
    assert np.mean([adjusted_rand_score(truth, one) > 0.97 for one in single]) < 0.6
    for seed in range(3):
        assert adjusted_rand_score(truth, votes(vectors, 6, seed, starts=3).partition) == 1


def test_of_equal_candidates_the_tight_one_is_chosen() -> None:
    tight, loose = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    vectors = np.array([[0, 1], [0, 1.5], [1, 0], [1.5, 0]], np.float32)
    for candidates in ([tight, loose], [loose, tight]):
        found = choose_consensus(candidates, memberships(candidates), [vectors], 2)
        np.testing.assert_array_equal(found, tight)


def test_the_tightest_quarter_of_each_number_of_clusters_is_selected() -> None:
    inertias = [4, 1, 3, 2, 8, 7, 6, 5]  # in the order of the starts, for each of the numbers of clusters
    space = [KMeansRun(np.array([start]), inertias[start]) for _ in FINENESS for start in range(8)]
    assert [int(partition[0]) for partition in tightest([space, space])] == [1, 3] * 8


def test_tight_runs_are_heard_where_most_runs_are_loose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where three quarters are loose, so is the consensus of all and that of a random half."""
    loose = np.where(TRUTH == 1, 0, TRUTH)
    loose[TRUTH == 3] += np.arange((TRUTH == 3).sum()) % 2 * -2
    runs = [KMeansRun(TRUTH, 1.0)] * 2 + [KMeansRun(loose, 9.0)] * 6
    monkeypatch.setattr("ucds.math.vote.runs_by_space", lambda *given, **named: [runs * len(FINENESS)])
    found = vote(make_spaces(BLOBS, K, names=("features",)), K, rng())
    assert adjusted_rand_score(TRUTH, found.partition) == 1


def test_the_generator_decides() -> None:
    one, again, other = (votes(NOISE, seed=seed).memberships.toarray() for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_clear_groups_are_stable_and_noise_is_not() -> None:
    found, clear = stability(BLOBS)
    assert clear.agreement == pytest.approx(1)
    np.testing.assert_array_equal(clear.shares, np.eye(K)[found.partition])
    found, unclear = stability(NOISE)
    assert unclear.agreement < 0.9
    assert unclear.shares.shape == (N, K)
    np.testing.assert_allclose(unclear.shares.sum(1), 1, atol=1e-6)
    assert unclear.shares.max(1).mean() < 0.97


def test_a_sample_about_which_voters_are_divided_is_the_one_in_doubt() -> None:
    other = np.where(np.arange(N) == 0, 1, TRUTH)
    shares = resample([TRUTH, other] * 8, None, 0.0, TRUTH, K, rng()).shares
    assert 0 < shares[0, 1] < 1
    assert shares[0, 0] == pytest.approx(1 - shares[0, 1])
    np.testing.assert_array_equal(shares[1:], np.eye(K)[TRUTH[1:]])


def test_labels_that_were_blended_in_count_in_every_part() -> None:
    found = votes(NOISE)
    labels = memberships([TRUTH])
    told = Vote(found.spaces, found.memberships, TRUTH)
    _, alone = stability(NOISE, told)
    _, taught = stability(NOISE, told, others=labels, weight=0.7)
    assert alone.agreement < 0.3
    assert taught.agreement > 0.9


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_all_samples_are_drawn_where_there_are_hardly_more_than_clusters() -> None:
    found = votes(BLOBS[:5], starts=1)
    joined = [one for space in found.spaces for one in space]
    shares = resample(joined, None, 0.0, found.partition, K, rng()).shares
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)


def test_the_chosen_of_two_consensuses_is_the_one_that_shares_name() -> None:
    """Two thirds of the votes join groups 2 and 3 and cut group 0, and the others do neither."""
    cut = np.where((TRUTH == 0) & (np.arange(N) // K % 2 == 0), 3, np.minimum(TRUTH, 2))
    shares = resample([TRUTH] * 8 + [cut] * 16, None, 0.0, TRUTH, K, rng()).shares
    np.testing.assert_array_equal(shares.argmax(1), TRUTH)
    assert shares.max(1).min() < 0.95


def test_single_clusterings_say_more_than_their_consensuses() -> None:
    """All consensuses of nine equal votes and three others are the nine; a quarter of the votes differs."""
    other = np.where(np.arange(N) == 0, 1, TRUTH)
    single = resample([TRUTH] * 9 + [other] * 3, None, 0.0, TRUTH, K, rng()).single
    assert single[0, :2].tolist() == pytest.approx([0.75, 0.25])
    np.testing.assert_allclose(single[1:], np.eye(K)[TRUTH[1:]], atol=1e-6)


def test_finer_clusterings_do_not_count_and_labels_count_by_their_weight() -> None:
    finer, moved = TRUTH + K * (np.arange(N) % 2), np.where(np.arange(N) == 0, 1, TRUTH)
    parts = [TRUTH] * 4 + [finer] * 4
    assert resample(parts, None, 0.0, TRUTH, K, rng()).single[0, 0] == pytest.approx(1)
    single = resample(parts, memberships([moved]), 0.3, TRUTH, K, rng()).single
    assert single[0, :2].tolist() == pytest.approx([0.7, 0.3])


def test_a_cluster_without_counterpart_counts_for_all_clusters_alike() -> None:
    joined = np.where(TRUTH == 1, 0, TRUTH)  # groups 0 and 1 are one, and only one of them finds it
    single = resample([joined] * 4, None, 0.0, joined, K, rng()).single
    np.testing.assert_allclose(single.sum(1), 1, atol=1e-6)
    single = resample([TRUTH] * 4, None, 0.0, joined, K, rng()).single
    assert sorted(single[TRUTH < 2].max(1).round(3).tolist())[0] == pytest.approx(1 / K, abs=1e-3)
