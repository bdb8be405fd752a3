"""Tests of the guard: the use of a provider's labels, and the sentence about it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.math.consensus import Partition, Vote, memberships
from ucds.target.guard import (
    GUARD,
    Evidence,
    KnownLabels,
    consistency,
    weigh_labels,
)

WEIGHTS = {"own": 0.0, "opinion": 0.35, "equal": 0.5}

N, K = 400, 4
TRUTH = np.arange(N) // (N // K)
EVERY = np.arange(N)
SHUFFLED = np.random.default_rng(9).permutation(TRUTH)


def ring(reach: int = 3) -> sparse.csr_array:
    """Every sample averaged with the next ones on both sides; at the edges of groups, with another group."""
    offsets = range(-reach, reach + 1)
    full = sum(np.eye(N, k=offset) for offset in offsets)
    return sparse.csr_array(full / full.sum(1, keepdims=True))


GRAPH = ring()


def noisy(share: float, seed: int) -> Partition:
    rng = np.random.default_rng(seed)
    partition = rng.permutation(K)[TRUTH]
    lost = rng.random(N) < share
    partition[lost] = rng.integers(K, size=int(lost.sum()))
    return partition


def blocks(seed: int) -> Partition:
    """Other groups that neighbours share: every twenty samples in a row have one of K names."""
    return np.random.default_rng(seed).integers(K, size=N // 20)[EVERY // 20]


DIVIDED = [[blocks(seed)] for seed in range(4)]
"""Clusterings that are nearly as consistent as the truth, and do not agree with each other."""
ALIKE = [[TRUTH], [3 - TRUTH], [(TRUTH + 1) % K]]


def weigh(
    labels: Partition,
    rows: Partition = EVERY,
    own: list[list[Partition]] = DIVIDED,
    provider_clusters: int = K,
    transfer: Transfer = "guarded",
) -> Evidence:
    vote = Vote(own, memberships([one for space in own for one in space]), own[0][0], K)
    return weigh_labels(vote, GRAPH, KnownLabels(labels, rows, provider_clusters), transfer)


def evidence(
    own_agreement: float = 0.5, trust: float = 0.3, agreement: float = 1.0, provider_clusters: int = K
) -> Evidence:
    """Evidence with chosen figures, as the rules see them."""
    consistency = own_agreement + trust
    figures = (own_agreement, agreement * own_agreement, 1.0, consistency)
    return Evidence("own", *figures, K, provider_clusters, N, "guarded")


@pytest.mark.parametrize(
    ("figures", "use"),
    [
        ({"trust": GUARD.least_trust - 0.001}, "own"),
        ({"trust": GUARD.least_trust}, "opinion"),
        ({"trust": GUARD.equal_trust - 0.001}, "opinion"),
        ({"trust": GUARD.equal_trust}, "equal"),
        ({"own_agreement": GUARD.undivided - 0.001, "trust": 0.0}, "opinion"),
        ({"own_agreement": GUARD.undivided, "trust": 0.0}, "own"),
        ({"own_agreement": GUARD.undivided, "trust": GUARD.equal_trust}, "equal"),
        ({"agreement": GUARD.least_agreement}, "equal"),
        ({"agreement": GUARD.least_agreement - 0.001}, "own"),
        ({"provider_clusters": K - 1}, "own"),
        ({"provider_clusters": 2 * K}, "equal"),
    ],
)
def test_each_rule_at_its_edge(figures: dict[str, Any], use: str) -> None:
    found = evidence(**figures)
    assert found.advised == use
    assert replace(found, use=found.advised).weight == WEIGHTS[use]


TRUSTED = Evidence("own", 0.5, 0.5, 0.9, 0.72, K, K, N, "guarded")
DIVIDES = Evidence("opinion", 0.8, 0.6, 0.5, 0.45, K, K, N, "guarded")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (DIVIDES, ["decided where your own clusterings were divided", "trust 0.10; needed: -0.05"]),
        (DIVIDES, ["90% as often", "to 0.80 and with the labels to 0.60", "trust"]),
        (replace(DIVIDES, own_agreement=0.9, provider_agreement=0.8), ["trust 0.00; needed: 0.08"]),
        (replace(DIVIDES, use="equal"), ["as much as all your own clusterings together", "trust"]),
        (TRUSTED, ["labels were not used", "trust 0.30"]),
        (replace(TRUSTED, provider_clusters=3), ["because they have 3 clusters and you have 4"]),
        (replace(TRUSTED, provider_agreement=0.2), ["only 40% as well", "(needed: 65%)"]),
        (weigh(TRUTH, own=ALIKE), ["not needed: your own clusterings have the same groups"]),
        (weigh(TRUTH, own=ALIKE, transfer="equal"), ["because the setting 'transfer' says so"]),
    ],
)
def test_the_sentence_tells_the_use_and_the_rule_that_decided(found: Evidence, words: list[str]) -> None:
    assert [word for word in words if word not in found.sentence] == []
    assert ("trust" in found.sentence) == any("trust" in word for word in words)


def test_the_figures_are_means_of_adjusted_information_and_of_consistency() -> None:
    own = [[noisy(0.2, seed)] for seed in range(3)]
    found = weigh(SHUFFLED, own=own)
    pairs = [adjusted_mutual_info_score(own[a][0], own[b][0]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert found.own_agreement == pytest.approx(np.mean(pairs))
    theirs = [adjusted_mutual_info_score(SHUFFLED, one) for [one] in own]
    assert found.provider_agreement == pytest.approx(np.mean(theirs))
    assert found.own_consistency == pytest.approx(consistency(GRAPH, own[0][0], EVERY))
    assert found.provider_consistency == pytest.approx(consistency(GRAPH, SHUFFLED, EVERY))


def test_consistency_by_hand() -> None:
    graph = sparse.csr_array(np.array([[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]))
    labels, rows = np.array([7, 7, 2]), np.arange(3)
    assert consistency(graph, labels, rows) == pytest.approx((1 / 2 + 1 / 3) / (1 / 2 + 2 / 3 + 1 / 2))
    assert consistency(graph, labels[:2], rows[:2]) == pytest.approx(1)
    assert consistency(graph, np.array([2, 7]), rows[1:]) == 0
    # Without the sample between them, both have no neighbour, and nothing speaks for their labels.
    assert consistency(graph, labels[[0, 2]], np.array([0, 2])) == 0


@pytest.mark.parametrize(("labels", "use"), [(TRUTH, "equal"), (SHUFFLED, "own")], ids=["right", "shuffled"])
def test_labels_of_some_samples_are_weighed_on_those(labels: Partition, use: str) -> None:
    rows = EVERY[EVERY % 8 < 4]  # some neighbours have a label too
    found = weigh(labels[rows], rows)
    assert (found.use, found.labelled) == (use, N // 2)
    elsewhere = np.where(np.isin(EVERY, rows), labels, 0)
    assert weigh(elsewhere[rows], rows) == found


@pytest.mark.parametrize("transfer", ["own", "opinion", "equal"])
@pytest.mark.parametrize("labels", [TRUTH, SHUFFLED], ids=["right", "shuffled"])
def test_a_setting_decides_and_the_evidence_stays(transfer: Transfer, labels: Partition) -> None:
    found = weigh(labels, transfer=transfer)
    assert (found.use, found.decided, found.weight) == (transfer, transfer, WEIGHTS[transfer])
    assert found.trust == weigh(labels).trust


def test_evidence_is_written_as_json_even_of_clusterings_of_nothing() -> None:
    for own in (DIVIDED, [[np.zeros(N, int)], [TRUTH]]):
        found = weigh(TRUTH, own=own)
        again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        names = ("use", "decided", "labelled", "provider_clusters", "trust", "weight", "sentence")
        assert again == again | {name: getattr(found, name) for name in names}
