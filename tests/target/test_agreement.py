"""Tests of `agree`: the vote of clusterings in several spaces, and the use of a provider's labels."""

from typing import Any

import numpy as np
import pytest
from quick import quick
from sklearn.metrics import adjusted_rand_score

from ucds.math.consensus import USUAL, Partition
from ucds.target.agreement import GROUPLESS, SETTLED, Agreed, agree
from ucds.target.guard import KnownLabels
from ucds.target.remembered import Remembered

N, K = 72, 4
TRUTH = np.arange(N) % K
TRANSFERS = ("own", "opinion", "equal")


def groups(noise: float, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed).normal(size=(N, 6))
    return (np.eye(6)[TRUTH] + noise * draw + 0.5).astype(np.float32)


CLEAR, BLURRED = groups(0.05), groups(0.5)


def run(
    vectors: np.ndarray, labels: Partition | None = None, rows: Partition | None = None, **settings: Any
) -> Agreed:
    known = None
    if labels is not None:
        known = KnownLabels(labels, np.arange(N) if rows is None else rows, len(np.unique(labels)))
    return agree(vectors, K, quick(**settings), np.random.default_rng(0), known)


def rand_index(agreed: Agreed) -> float:
    return float(adjusted_rand_score(TRUTH, agreed.partition))


def test_clear_groups_are_found_alone_and_noise_without_groups_is_doubted() -> None:
    found = run(CLEAR, starts=2)
    assert found.evidence is None
    assert rand_index(found) == 1
    assert found.partition.dtype == np.int64
    assert found.own.agreement == pytest.approx(1)
    np.testing.assert_allclose(found.shares, np.eye(K)[found.partition], atol=1e-6)
    noise = np.random.default_rng(0).normal(size=(150, 40)).astype(np.float32)
    without_groups = agree(noise, K, quick(), np.random.default_rng(0))
    assert without_groups.own.agreement < GROUPLESS < SETTLED < found.own.agreement  # limits of doubt


def test_a_review_that_changes_no_cluster_fits_a_model_to_the_same_shares() -> None:
    found = run(BLURRED)
    partitions = np.array(found.own.partitions)
    remembered = Remembered(tuple(map(str, range(N))), partitions, found.partition, K, keys=())
    np.testing.assert_allclose(remembered.shares(found.partition, K), found.shares, atol=1e-6)


def test_right_labels_help_the_more_the_more_they_weigh() -> None:
    """And the guard lets them weigh most where own clusterings are divided."""
    alone, opinion, equal = (rand_index(run(BLURRED, TRUTH, transfer=use)) for use in TRANSFERS)
    assert alone <= opinion <= equal
    assert alone + 0.05 < equal
    guarded = run(BLURRED, TRUTH)
    assert guarded.evidence is not None
    assert (guarded.evidence.use, guarded.evidence.decided) == ("equal", "guarded")
    assert rand_index(guarded) == equal


OTHER_BORDER = np.where(TRUTH < 2, np.arange(N) < N // 2, TRUTH)
"""Groups 0 and 1 have another border in the labels: the first half of both, and the second."""


@pytest.mark.parametrize("transfer", ["opinion", "equal"])
@pytest.mark.parametrize(
    "labels",
    [(TRUTH + 1) % K, OTHER_BORDER, TRUTH // 2, TRUTH + K * (np.arange(N) // K % 3), np.zeros(N, int)],
    ids=["right", "another border", "2 clusters", "12 clusters", "1 cluster"],
)
def test_no_labels_split_a_group_that_all_own_clusterings_find(labels: Partition, transfer: str) -> None:
    found = run(CLEAR, labels, transfer=transfer)
    assert rand_index(found) == 1
    assert found.shares.shape == (N, K)
    assert found.evidence is not None
    assert found.evidence.use == transfer


def test_own_clusterings_and_labels_have_the_weight_of_one_clustering_together() -> None:
    """All labels are equal, so that they speak against the clusters of three groups out of four."""
    found = run(CLEAR, np.zeros(N, int), transfer="equal")
    own = np.sort(found.shares[np.arange(N), found.partition])
    single = np.repeat([0.5, 1.0], [N - N // K, N // K])  # share of the single clusterings
    np.testing.assert_allclose(own, 1 - USUAL.single_weight * (1 - single), atol=1e-6)


def test_the_guard_sets_shuffled_labels_aside() -> None:
    shuffled = np.random.default_rng(1).permutation(TRUTH)
    alone, found = run(BLURRED), run(BLURRED, shuffled)
    assert found.evidence is not None
    assert (found.evidence.use, found.evidence.decided) == ("own", "guarded")
    np.testing.assert_array_equal(found.partition, alone.partition)
    np.testing.assert_array_equal(found.shares, alone.shares)


def test_the_providers_number_of_clusters_is_not_that_of_the_clusters_that_occur() -> None:
    three = np.flatnonzero(TRUTH < 3)
    settings, rng = quick(), np.random.default_rng(0)
    for said in (3, K):
        found = agree(BLURRED, K, settings, rng, KnownLabels(TRUTH[three], three, said))
        assert found.evidence is not None
        assert found.evidence.provider_clusters == said
        assert (found.evidence.use == "own") == (said < K)


def test_a_sample_without_a_label_has_that_of_the_nearest_that_has_one() -> None:
    rows = np.array([0, 1, 6, 7])  # one of each group
    some, every = (run(CLEAR, TRUTH[r], r, transfer="equal") for r in (rows, np.arange(N)))
    assert some.evidence is not None
    assert some.evidence.labelled == 4
    np.testing.assert_array_equal(some.partition, every.partition)
    np.testing.assert_array_equal(some.shares, every.shares)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("labels", [None, TRUTH])
def test_constant_features_do_not_crash(labels: Partition | None) -> None:
    found = run(np.ones((N, 3), np.float32), labels)
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-6)
