"""Tests of `agree`: the vote of clusterings in several spaces, and the use of a provider's labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ucds.config import ConsensusSettings
from ucds.math.partitions import Partition
from ucds.target.consensus import Agreed, agree

N, K = 96, 4
TRUTH = np.arange(N) % K
TRANSFERS = ("own", "consensus", "transferred")


def groups(noise: float, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).normal(size=(N, 6))
    return (np.eye(6)[TRUTH] + noise * draw + 0.5).astype(np.float32)


CLEAR, BLURRED = groups(0.05), groups(0.5)


def run(
    vectors: np.ndarray, labels: Partition | None = None, rows: Partition | None = None, **settings: Any
) -> Agreed:
    chosen = ConsensusSettings.from_mapping({"space_partitions": 3} | settings)
    return agree(vectors, K, chosen, np.random.default_rng(0), labels=labels, rows=rows)


def rand_index(agreed: Agreed) -> float:
    return float(adjusted_rand_score(TRUTH, agreed.partition))


def test_clear_groups_are_found_alone() -> None:
    found = run(CLEAR, space_partitions=10)
    assert found.evidence is None
    assert rand_index(found) == 1
    assert found.partition.dtype == np.int64
    assert found.shares.shape == (N, K)
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-6)
    np.testing.assert_array_equal(found.shares.argmax(1), found.partition)
    assert found.shares.max(1).mean() > 0.8


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_right_labels_do_no_harm_in_any_use(transfer: str) -> None:
    found = run(CLEAR, (TRUTH + 1) % K, transfer=transfer, space_partitions=10)
    assert rand_index(found) == 1
    assert found.evidence is not None
    assert found.evidence.use == transfer
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-6)


def test_labels_that_are_not_used_change_nothing() -> None:
    alone, beside = run(BLURRED), run(BLURRED, TRUTH, transfer="own")
    np.testing.assert_array_equal(alone.partition, beside.partition)
    np.testing.assert_array_equal(alone.shares, beside.shares)


def test_labels_in_the_consensus_have_the_votes_of_one_space() -> None:
    labels = TRUTH.copy()
    labels[5] = 3  # in truth 1
    found = run(CLEAR, labels, transfer="consensus", spaces=("principal",), space_partitions=1)
    names = {int(TRUTH[i]): int(found.partition[i]) for i in range(4)}
    assert rand_index(run(CLEAR, spaces=("principal",), space_partitions=1)) == 1
    expected = np.zeros(K)
    # One vote of the only space and one of the labels; half of all is that of the consensus.
    expected[[names[1], names[3]]] = 0.25
    expected[found.partition[5]] += 0.5
    np.testing.assert_allclose(found.shares[5], expected)
    others = np.delete(found.shares, 5, axis=0)
    assert set(np.unique(others)) == {0.0, 1.0}


def test_labels_beside_three_spaces_have_a_quarter_of_the_votes() -> None:
    labels = TRUTH.copy()
    labels[5] = 3
    spaces = ("features", "principal", "near")
    found = run(CLEAR, labels, transfer="consensus", spaces=spaces, space_partitions=10)
    assert rand_index(found) == 1
    assert found.shares[5, found.partition[3]] == pytest.approx(0.25 / 2, abs=0.025)


def test_right_labels_help_where_groups_are_blurred() -> None:
    alone, voted, widened = (rand_index(run(BLURRED, TRUTH, transfer=use)) for use in TRANSFERS)
    assert alone == rand_index(run(BLURRED))
    assert alone + 0.1 < min(voted, widened)
    assert voted != widened


def test_the_guard_chooses() -> None:
    shuffled = np.random.default_rng(1).permutation(TRUTH)
    for labels, use in ((TRUTH, "consensus"), (shuffled, "own")):
        found = run(CLEAR, labels, space_partitions=10)
        assert found.evidence is not None
        assert (found.evidence.use, found.evidence.decided) == (use, "guarded")
        assert rand_index(found) == 1


def test_the_guard_transfers_labels_that_tell_apart_what_looks_alike() -> None:
    n, n_clusters = 320, 8
    truth, draw = np.arange(n) % n_clusters, np.random.default_rng(0).normal(size=(n, 10))
    places = np.eye(10)[truth]
    places[truth == 7] = np.eye(10)[6] + 0.2 * np.eye(10)[7]  # almost where group 6 is
    places[(truth == 0) & (np.arange(n) % 16 == 0)] = np.eye(10)[8]  # half of group 0 looks different
    vectors = (places + 0.05 * draw + 0.5).astype(np.float32)
    settings = ConsensusSettings(space_partitions=10)
    found = agree(vectors, n_clusters, settings, np.random.default_rng(0), labels=truth)
    assert found.evidence is not None
    assert found.evidence.use == "transferred"
    assert found.evidence.provider_groups == pytest.approx(1 / 8)
    assert found.evidence.own_groups < 0.05


def test_a_sample_without_a_label_has_that_of_the_nearest_that_has_one() -> None:
    one_space: dict[str, Any] = {"transfer": "consensus", "spaces": ("principal",), "space_partitions": 1}
    rows = np.array([0, 1, 6, 7])  # one of each group
    right = run(CLEAR, TRUTH[rows], rows, **one_space)
    np.testing.assert_array_equal(right.shares, np.eye(K)[right.partition])
    assert rand_index(right) == 1
    assert right.evidence is not None
    assert right.evidence.labelled == 4
    # Two groups of one name: their cluster finds one partner, so that in the other one of two is lost.
    merged = run(CLEAR, np.array([0, 1, 2, 2]), rows, **one_space)
    assert [merged.shares[k == TRUTH].max(1).min() for k in range(2)] == [1.0, 1.0]
    assert sorted(float(merged.shares[k == TRUTH].max(1).mean()) for k in (2, 3)) == [0.75, 1.0]


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_labels_of_some_samples_do_no_harm(transfer: str) -> None:
    rows = np.sort(np.random.default_rng(3).choice(N, 24, replace=False))
    found = run(CLEAR, TRUTH[rows], rows, transfer=transfer, space_partitions=10)
    assert rand_index(found) == 1


@pytest.mark.parametrize("transfer", TRANSFERS)
@pytest.mark.parametrize(
    "labels", [TRUTH // 2, TRUTH + K * (np.arange(N) // K % 3), np.zeros(N, int)], ids=["2", "12", "1"]
)
def test_a_provider_may_have_another_number_of_clusters(labels: Partition, transfer: str) -> None:
    found = run(CLEAR, labels, transfer=transfer, space_partitions=10)
    assert found.shares.shape == (N, K)
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-6)
    if transfer != "transferred":  # further coordinates may well split other groups
        assert rand_index(found) == 1


def test_names_of_labels_mean_nothing() -> None:
    for transfer in TRANSFERS:
        one, other = (run(CLEAR, labels, transfer=transfer) for labels in (TRUTH, 3 - TRUTH))
        assert adjusted_rand_score(one.partition, other.partition) == 1


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("labels", [None, TRUTH])
def test_constant_features_do_not_crash(labels: Partition | None) -> None:
    found = run(np.ones((N, 3), np.float32), labels)
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-6)
