"""Tests of the second opinion: when it is taken, what votes then, many samples, threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.choices import OpinionChoices
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import USUAL, Vote, blend, cluster_by_vote, memberships
from ucds.math.second_opinion import cluster_by_opinions
from ucds.math.spaces import make_spaces

K, QUICK = 4, OpinionChoices()


def blobs(n: int, noise: float = 0.1) -> tuple[FloatArray, IntArray]:
    truth = np.arange(n) % K
    vectors = np.eye(8)[truth] + noise * np.random.default_rng(0).normal(size=(n, 8))
    return (vectors + 0.5).astype(np.float32), truth


BLURRED, TRUTH = blobs(150, 0.4)


def ask(vectors: FloatArray, second: OpinionChoices = QUICK, seed: int = 0) -> Vote:
    return cluster_by_opinions(
        make_spaces(vectors, K), K, np.random.default_rng(seed), choices=USUAL.with_starts(2), second=second
    )


def own_vote(vectors: FloatArray) -> Vote:
    spaces = make_spaces(vectors, K).vectors
    return cluster_by_vote(list(spaces.values()), K, np.random.default_rng(0), choices=USUAL.with_starts(2))


def test_without_embeddings_the_consensus_is_the_own_one() -> None:
    own, found = own_vote(BLURRED), ask(BLURRED, replace(QUICK, draws=0))
    assert found.opinion is None
    np.testing.assert_array_equal(found.partition, own.partition)


@pytest.mark.parametrize(("n", "asked"), [(10 * K - 1, False), (10 * K, True)])
def test_none_is_asked_for_where_a_neighbourhood_would_hold_several_clusters(n: int, asked: bool) -> None:
    assert (ask(BLURRED[:n]).opinion is not None) == asked


@pytest.mark.parametrize("limit", ["most_inertia", "most_change", "most_fall"])
def test_each_of_the_three_figures_can_set_the_second_opinion_aside(limit: str) -> None:
    anything = replace(QUICK, most_inertia=np.inf, most_change=np.inf, most_fall=np.inf)
    taken, refused = ask(BLURRED, anything), ask(BLURRED, replace(anything, **{limit: -1.0}))
    assert taken.opinion is not None
    assert refused.opinion is not None
    assert (taken.opinion.taken, refused.opinion.taken) == (True, False)
    own = own_vote(BLURRED)
    np.testing.assert_array_equal(refused.partition, own.partition)
    np.testing.assert_array_equal(refused.memberships.toarray(), own.memberships.toarray())
    assert len(refused.partitions) == len(own.partitions)
    # What is taken votes with its weight, and the agreement of the own clusterings stays as it is.
    joined = blend(own.memberships, memberships(taken.opinion.partitions), QUICK.weight)
    np.testing.assert_array_equal(taken.memberships.toarray(), joined.toarray())
    assert len(taken.partitions) == len(own.partitions) + len(taken.opinion.partitions)
    assert taken.agreement == own.agreement


def test_clear_groups_are_found_by_both() -> None:
    found = ask(blobs(150)[0])
    assert found.opinion is not None
    assert (found.opinion.taken, found.opinion.agreement) == (True, pytest.approx(1))
    assert adjusted_rand_score(TRUTH, found.partition) == 1


def test_of_many_samples_some_have_a_place_and_the_others_vote_like_them() -> None:
    vectors, truth = blobs(3300)
    found = ask(vectors, replace(QUICK, draws=1, steps=30))
    assert found.opinion is not None
    assert all(one.shape == truth.shape for one in found.opinion.partitions)
    assert adjusted_rand_score(truth, found.partition) == 1


def test_equal_seeds_give_equal_votes_for_any_number_of_threads() -> None:
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.append(ask(BLURRED))
    for other in found[1:]:
        np.testing.assert_array_equal(other.partition, found[0].partition)
        np.testing.assert_array_equal(other.memberships.toarray(), found[0].memberships.toarray())
