"""Tests of partitions: k-means in several spaces, their consensus, and votes."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ucds.math.partitions import (
    Partition,
    consensus,
    kmeans_partitions,
    match,
    share_unmatched,
    vote_shares,
)

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


def test_kmeans_gives_so_many_partitions_a_space_and_finds_blobs() -> None:
    blob = (10 * np.eye(K)[TRUTH] + 0.1 * rng().normal(size=(N, K))).astype(np.float32)
    other = blob[:, :2]  # in which two of the groups are one
    found = kmeans_partitions([blob, other], K, 5, rng())
    assert len(found) == 10
    assert {partition.dtype for partition in found} == {np.dtype(np.int64)}
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[:5]) == 1
    assert max(adjusted_rand_score(TRUTH, partition) for partition in found[5:]) < 1


def test_the_starts_are_the_generators() -> None:
    noise = rng(5).normal(size=(60, 3)).astype(np.float32)
    one, again, other = (kmeans_partitions([noise], 5, 3, rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[0], one[1])


@pytest.mark.parametrize("votes", [1, 6])
def test_the_consensus_of_one_mind_is_that_mind(votes: int) -> None:
    renamed = [rng(seed).permutation(K)[TRUTH] for seed in range(votes)]
    found = consensus(renamed, K, rng())
    assert found.dtype == np.int64
    assert adjusted_rand_score(TRUTH, found) == 1


def test_the_consensus_is_better_than_any_voice() -> None:
    assert max(adjusted_rand_score(TRUTH, partition) for partition in NOISY) < 0.8
    assert adjusted_rand_score(TRUTH, consensus(NOISY, K, rng())) > 0.98


def test_names_and_order_of_samples_mean_nothing() -> None:
    found = consensus(NOISY, K, rng())
    renamed = [rng(10 + i).permutation(K)[partition] for i, partition in enumerate(NOISY)]
    assert adjusted_rand_score(found, consensus(renamed, K, rng())) == 1
    order = rng(3).permutation(N)
    moved = consensus([partition[order] for partition in NOISY], K, rng())
    assert adjusted_rand_score(found[order], moved) == 1
    assert adjusted_rand_score(found, consensus(NOISY[::-1], K, rng(8))) == 1


def test_a_partition_listed_so_often_has_so_many_votes() -> None:
    other = (np.arange(N) // K) % K  # says nothing about the truth
    assert adjusted_rand_score(TRUTH, consensus([TRUTH, other, TRUTH, TRUTH], K, rng())) == 1
    assert adjusted_rand_score(other, consensus([TRUTH, other, other, other], K, rng())) == 1
    twice = consensus([*NOISY, *NOISY], K, rng())
    assert adjusted_rand_score(consensus(NOISY, K, rng()), twice) == 1


def test_partitions_of_two_cross_to_one_of_four() -> None:
    assert adjusted_rand_score(TRUTH, consensus([TRUTH // 2, TRUTH % 2], K, rng())) == 1


def test_finer_partitions_and_unused_names_take_part() -> None:
    finer = 10 + TRUTH + K * (np.arange(N) % 3)
    assert adjusted_rand_score(TRUTH, consensus([finer, TRUTH, TRUTH], K, rng())) == 1


def test_votes_are_one_hot_when_all_agree() -> None:
    renamed = [rng(seed).permutation(K)[TRUTH] for seed in range(4)]
    np.testing.assert_array_equal(vote_shares(renamed, TRUTH, K), np.eye(K)[TRUTH])


def test_shares_sum_to_one_and_follow_the_votes() -> None:
    shares = vote_shares(NOISY, TRUTH, K)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    assert ((shares > 0) & (shares < 1)).any()
    np.testing.assert_allclose(shares * 7, np.round(shares * 7), atol=1e-5)
    other = TRUTH.copy()
    other[0] = 1
    np.testing.assert_allclose(vote_shares([TRUTH, other, other, other], TRUTH, K)[0], [0.25, 0.75, 0, 0])


def test_a_cluster_without_partner_votes_for_nothing() -> None:
    agreed, split = np.array([0, 0, 1, 1, 1]), np.array([5, 5, 2, 2, 0])
    assert match(split, agreed) == {5: 0, 2: 1}
    np.testing.assert_array_equal(vote_shares([split], agreed, 2), np.eye(2)[agreed])  # the last vote is lost
    lone = np.array([0, 0, 0, 1, 1])
    np.testing.assert_allclose(vote_shares([split, lone], agreed, 2)[[2, 4]], [[0.5, 0.5], [0, 1]])


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
