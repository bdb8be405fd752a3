"""Tests of the guard: the use of a provider's labels, and the sentence about it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.math.partitions import Partition, memberships
from ucds.math.vote import Vote
from ucds.target.guard import (
    LEAST_AGREEMENT,
    LEAST_CONSISTENCY,
    LEAST_TRUST,
    UNDIVIDED,
    WEIGHTS,
    Evidence,
    consistency,
    weigh_labels,
)

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
HALVES = [[blocks(0)], [TRUTH], [np.where(EVERY < N // 2, blocks(0), TRUTH)]]
"""Clusterings that agree about one half."""


def weigh(
    labels: Partition,
    rows: Partition = EVERY,
    own: list[list[Partition]] = DIVIDED,
    provider_clusters: int = K,
    transfer: Transfer = "guarded",
) -> Evidence:
    vote = Vote(own, memberships([one for space in own for one in space]), own[0][0])
    return weigh_labels(
        vote, GRAPH, labels, rows, n_clusters=K, provider_clusters=provider_clusters, transfer=transfer
    )


@pytest.mark.parametrize("error", [-1e-12, 0.0, 1e-12])
def test_rounding_does_not_decide_where_all_clusterings_are_equal(error):
    """Then trust is 0, the least of an opinion, up to the order in which agreements are summed."""
    evidence = Evidence("own", 1.0 - error, 1.0, 0.9, 0.9 * (1 + error), K, K, N, "guarded")
    assert evidence.trust == LEAST_TRUST["opinion"]


def test_right_labels_are_adopted_where_own_clusterings_are_divided() -> None:
    found = weigh(TRUTH)
    assert found.own_agreement < 0.5
    assert found.consistency > 1
    assert (found.use, found.weight, found.labelled) == ("adopted", 0.7, N)


@pytest.mark.parametrize("own", [DIVIDED, ALIKE], ids=["divided", "alike"])
def test_shuffled_labels_are_set_aside(own: list[list[Partition]]) -> None:
    found = weigh(SHUFFLED, own=own)
    assert (found.use, found.weight) == ("own", 0)
    assert abs(found.provider_agreement) < 0.05


def test_the_less_the_labels_fit_the_neighbourhoods_the_less_they_count() -> None:
    found = [weigh(noisy(share, 5), own=HALVES) for share in (0.0, 0.1, 0.2, 0.6)]
    assert [one.trust for one in found] == sorted((one.trust for one in found), reverse=True)
    weights = [one.weight for one in found]
    assert weights == sorted(weights, reverse=True)
    assert (found[0].use, found[-1].use) == ("adopted", "own")


def test_labels_that_agree_too_little_are_set_aside_unless_they_are_consistent() -> None:
    found = Evidence("own", 0.5, 0.32, 0.9, 0.72, K, K, N, "guarded")
    assert (found.agreement, found.consistency) == pytest.approx((0.64, 0.8))
    assert found.trust > LEAST_TRUST["equal"]
    assert found.advised == "own"
    assert replace(found, provider_agreement=0.5 * LEAST_AGREEMENT).advised == "equal"
    assert replace(found, provider_consistency=0.9 * LEAST_CONSISTENCY + 1e-9).advised == "equal"


def test_labels_of_little_trust_are_set_aside_where_own_clusterings_agree_nearly_fully() -> None:
    def advised(own_agreement: float, trust: float) -> str:
        consistency = own_agreement + trust
        found = Evidence("own", own_agreement, own_agreement, 1.0, consistency, K, K, N, "guarded")
        assert found.trust == pytest.approx(trust)
        return found.advised

    divided = [advised(UNDIVIDED - 1e-6, trust) for trust in (-0.06, -0.04, 0.01, 0.09)]
    assert divided == ["own", "hint", "opinion", "equal"]
    alike = [advised(UNDIVIDED, trust) for trust in (-0.04, 0.01, 0.079, 0.09)]
    assert alike == ["own", "own", "own", "equal"]


def test_the_sentence_names_the_least_trust_that_was_asked() -> None:
    divided = Evidence("own", 0.5, 0.5, 1.0, 0.4, K, K, N, "guarded")
    assert "used from -0.05" in divided.sentence
    assert "used from 0.08" in replace(divided, own_agreement=UNDIVIDED, provider_agreement=0.9).sentence


def test_labels_of_the_own_groups_are_said_to_be_not_needed() -> None:
    same = weigh(TRUTH, own=ALIKE)
    assert same.use == "own"
    assert "not needed: your own clusterings have the same groups" in same.sentence
    assert "not needed" not in weigh(noisy(0.1, 5), own=ALIKE).sentence
    assert "because the setting" in weigh(TRUTH, own=ALIKE, transfer="adopted").sentence


def test_the_more_own_clusterings_agree_the_more_is_asked_of_labels() -> None:
    labels = noisy(0.1, 5)
    divided, alike = weigh(labels), weigh(labels, own=ALIKE)
    assert alike.own_agreement == pytest.approx(1)
    assert alike.trust == pytest.approx(alike.consistency - 1)
    assert (divided.use, alike.use) == ("adopted", "own")


def test_labels_of_fewer_clusters_than_the_target_has_are_set_aside() -> None:
    assert weigh(TRUTH, provider_clusters=K - 1).use == "own"
    assert weigh(TRUTH // 2, provider_clusters=2).use == "own"
    assert weigh(TRUTH // 2, provider_clusters=K).trust > LEAST_TRUST["adopted"]
    assert weigh(TRUTH + K * (EVERY % 100 // 50), provider_clusters=2 * K).use == "adopted"
    assert weigh(TRUTH // 2, provider_clusters=2, transfer="adopted").use == "adopted"


def test_the_edges_of_trust_belong_to_the_better_side(monkeypatch: pytest.MonkeyPatch) -> None:
    trust = weigh(TRUTH).trust
    for least, use in (
        ({"adopted": trust, "equal": 0, "opinion": 0, "hint": 0}, "adopted"),
        ({"adopted": trust + 1e-9, "equal": trust, "opinion": 0, "hint": 0}, "equal"),
        ({"adopted": 9, "equal": trust + 1e-9, "opinion": trust, "hint": 0}, "opinion"),
        ({"adopted": 9, "opinion": trust + 1e-9, "hint": trust}, "hint"),
        ({"adopted": 9, "opinion": 9, "hint": trust + 1e-9}, "own"),
    ):
        monkeypatch.setattr("ucds.target.guard.LEAST_TRUST", least)
        assert weigh(TRUTH).use == use


def test_thresholds_and_weights_fall_together() -> None:
    uses = ("adopted", "equal", "opinion", "hint")
    assert tuple(LEAST_TRUST) == uses
    for better, worse in pairwise(uses):
        assert LEAST_TRUST[better] > LEAST_TRUST[worse]
        assert WEIGHTS[better] > WEIGHTS[worse] > WEIGHTS["own"] == 0


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


@pytest.mark.parametrize(
    ("labels", "use"), [(TRUTH, "adopted"), (SHUFFLED, "own")], ids=["right", "shuffled"]
)
def test_labels_of_some_samples_are_weighed_on_those(labels: Partition, use: str) -> None:
    rows = EVERY[EVERY % 8 < 4]  # some neighbours have a label too
    found = weigh(labels[rows], rows)
    assert (found.use, found.labelled) == (use, N // 2)
    elsewhere = np.where(np.isin(EVERY, rows), labels, 0)
    assert weigh(elsewhere[rows], rows) == found


def test_only_the_first_clustering_of_a_space_counts_unless_there_is_one_space() -> None:
    several = [[first[0], SHUFFLED] for first in DIVIDED]
    assert weigh(TRUTH, own=several) == weigh(TRUTH)
    assert weigh(TRUTH, own=[[space[0] for space in DIVIDED]]) == weigh(TRUTH)
    assert weigh(TRUTH, own=[[TRUTH]]).own_agreement == 1  # nothing to compare with


def test_names_mean_nothing() -> None:
    renamed = [[5 + (a + i) % K] for i, [a] in enumerate(DIVIDED)]
    one, other = weigh(10 - TRUTH, own=renamed), weigh(TRUTH)
    assert one.trust == pytest.approx(other.trust)
    assert one.provider_agreement == pytest.approx(other.provider_agreement)


@pytest.mark.parametrize("transfer", ["own", "hint", "opinion", "equal", "adopted"])
@pytest.mark.parametrize("labels", [TRUTH, SHUFFLED], ids=["right", "shuffled"])
def test_a_setting_decides_and_the_evidence_stays(transfer: Transfer, labels: Partition) -> None:
    found = weigh(labels, transfer=transfer)
    assert (found.use, found.decided, found.weight) == (transfer, transfer, WEIGHTS[transfer])  # type: ignore[index]
    assert found.trust == weigh(labels).trust
    assert found.sentence.endswith(", because the setting 'transfer' says so")
    assert "%" not in found.sentence


def test_the_sentence_tells_use_and_reasons() -> None:
    found = Evidence("hint", 0.8, 0.6, 0.5, 0.45, K, K, N, "guarded")
    assert found.trust == pytest.approx(0.9 - 0.8)
    for words in (
        "equally divided",
        "90% as often",
        "to 0.80 and with the labels to 0.60",
        "trust 0.10",
        "from -0.05",
        "from 0.40",
    ):
        assert words in found.sentence
    assert "labels were not used" in replace(found, use="own").sentence
    assert "labels were adopted" in replace(found, use="adopted").sentence
    assert "as much as all your own clusterings together" in replace(found, use="equal").sentence
    assert "decided where your own clusterings were divided," in replace(found, use="opinion").sentence
    assert "(they joined or split 25% of your groups)" in replace(found, regrouped=0.25).sentence
    assert "\n" not in found.sentence


def test_the_sentence_names_the_rule_that_set_labels_aside() -> None:
    trusted = Evidence("own", 0.5, 0.5, 0.9, 0.72, K, K, N, "guarded")
    fewer = replace(trusted, provider_clusters=3)
    assert fewer.advised == "own"
    assert "because they have 3 clusters and yours are 4" in fewer.sentence
    assert "trust" not in fewer.sentence
    strangers = replace(trusted, provider_agreement=0.2)
    assert strangers.advised == "own"
    assert "only 40% as well as these agree among themselves (used from 65%)" in strangers.sentence
    assert "trust" not in strangers.sentence
    assert "trust 0.30" in trusted.sentence


def test_evidence_is_written_as_json() -> None:
    found = weigh(TRUTH)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["sentence"] == found.sentence
    assert (again["use"], again["decided"], again["labelled"]) == ("adopted", "guarded", N)
    assert (again["trust"], again["weight"]) == (found.trust, 0.7)
    assert again["regrouped"] is None
    assert again["provider_clusters"] == K


def test_clusterings_of_nothing_divide_nothing_by_zero() -> None:
    found = weigh(TRUTH, own=[[np.zeros(N, int)], [TRUTH]])
    assert np.isfinite(found.trust)
    assert "%" in found.sentence
