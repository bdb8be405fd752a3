"""Tests of the second opinion: when it is taken, what votes then, many samples, threads."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.choices import OpinionChoices
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.consensus import USUAL, Vote, blend, cluster_by_vote, memberships
from ucds.math.second_opinion import cluster_by_opinions
from ucds.math.spaces import make_spaces

K, QUICK = 4, OpinionChoices()
FEW = replace(USUAL, halves=3).with_starts(2)
ANYTHING = replace(QUICK, draws=1, steps=30, most_inertia=np.inf, most_change=np.inf, most_fall=np.inf)
NOTHING = replace(ANYTHING, most_inertia=0.0)


def blobs(n: int, noise: float = 0.1) -> tuple[FloatArray, IntArray]:
    truth = np.arange(n) % K
    vectors = np.eye(8)[truth] + noise * np.random.default_rng(0).normal(size=(n, 8))
    return (vectors + 0.5).astype(np.float32), truth


BLURRED = blobs(150, 0.4)[0]


def ask(vectors: FloatArray, second: OpinionChoices = QUICK, seed: int = 0) -> Vote:
    return cluster_by_opinions(
        make_spaces(vectors, K), K, np.random.default_rng(seed), choices=FEW, second=second
    )


def own_vote(vectors: FloatArray) -> Vote:
    spaces = make_spaces(vectors, K).vectors
    return cluster_by_vote(list(spaces.values()), K, np.random.default_rng(0), choices=FEW)


def test_without_embeddings_the_consensus_is_the_own_one() -> None:
    own, found = own_vote(BLURRED), ask(BLURRED, replace(QUICK, draws=0))
    assert found.opinion is None
    np.testing.assert_array_equal(found.partition, own.partition)


@pytest.mark.parametrize(("n", "asked"), [(10 * K - 1, False), (10 * K, True)])
def test_none_is_asked_for_where_a_neighbourhood_would_hold_several_clusters(n: int, asked: bool) -> None:
    assert (ask(BLURRED[:n]).opinion is not None) == asked


def measure(vectors: FloatArray, partition: IntArray) -> tuple[float, float, float]:
    """Inertia in the last space, share of links inside clusters, evenness: by the definitions."""
    spaces = make_spaces(vectors, K)
    links, names = spaces.graph.toarray(), np.unique(partition)
    last = spaces.vectors["diffused-principal"]
    means = np.stack([last[partition == k].mean(0) for k in names])
    inertia = ((last - means[np.searchsorted(names, partition)]) ** 2).sum()
    inside = links[partition[:, None] == partition].sum() / links.sum()
    return float(inertia), float(inside), float(entropy(np.bincount(partition)) / np.log(K))


# Links rise and evenness falls; or the contrary.
@pytest.mark.parametrize(("n", "noise", "links", "evenness"), [(100, 0.55, 1, -1), (90, 0.5, -1, 1)])
def test_each_of_three_figures_decides_at_its_limit(n: int, noise: float, links: int, evenness: int) -> None:
    vectors = blobs(n, noise)[0]
    own, joint = own_vote(vectors), ask(vectors, ANYTHING)
    before, after = measure(vectors, own.partition), measure(vectors, joint.partition)
    assert (np.sign(after[1] - before[1]), np.sign(after[2] - before[2])) == (links, evenness)
    figures = {
        "most_inertia": after[0] / before[0],
        "most_change": abs(after[1] / before[1] - 1),
        "most_fall": before[2] - after[2],
    }
    just_allowed = {limit: figure + 1e-5 for limit, figure in figures.items()}
    for forbidden in (None, *figures):
        limits = {limit: value - 2e-5 * (limit == forbidden) for limit, value in just_allowed.items()}
        found = ask(vectors, replace(ANYTHING, **limits))
        assert found.opinion is not None
        assert found.opinion.taken == (forbidden is None), forbidden


def test_what_is_taken_votes_with_its_weight_and_what_is_refused_changes_nothing() -> None:
    own, taken, refused = own_vote(BLURRED), ask(BLURRED, ANYTHING), ask(BLURRED, NOTHING)
    assert taken.opinion is not None
    assert refused.opinion is not None
    assert (taken.opinion.taken, refused.opinion.taken) == (True, False)
    np.testing.assert_array_equal(refused.partition, own.partition)
    np.testing.assert_array_equal(refused.memberships.toarray(), own.memberships.toarray())
    assert len(refused.partitions) == len(own.partitions)
    # The agreement of the own clusterings stays as it is.
    joined = blend(own.memberships, memberships(taken.opinion.partitions), QUICK.weight)
    np.testing.assert_array_equal(taken.memberships.toarray(), joined.toarray())
    assert len(taken.partitions) == len(own.partitions) + len(taken.opinion.partitions)
    assert taken.agreement == own.agreement
    # By its votes alone, samples stay where it has them. It is compared with the own consensus.
    alone = ask(BLURRED, replace(ANYTHING, weight=1.0)).partition
    assert taken.opinion.agreement == pytest.approx(adjusted_mutual_info_score(own.partition, alone))


def test_of_many_samples_some_have_a_place_and_the_others_vote_like_them() -> None:
    order = np.random.default_rng(0).permutation(3100)
    vectors, truth = (found[order] for found in blobs(3100))
    found = ask(vectors, replace(QUICK, draws=1, steps=150))
    assert found.opinion is not None
    assert found.opinion.taken
    assert adjusted_rand_score(truth, found.opinion.partitions[0]) == 1
    assert found.opinion.agreement > 0.95
    assert adjusted_rand_score(truth, found.partition) == 1


def test_equal_seeds_give_equal_votes_for_any_number_of_threads() -> None:
    found = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            found.append(ask(BLURRED, ANYTHING))
    np.testing.assert_array_equal(found[1].partition, found[0].partition)
    np.testing.assert_array_equal(found[1].memberships.toarray(), found[0].memberships.toarray())
