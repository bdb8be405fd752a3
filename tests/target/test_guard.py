"""Tests of the guard: the use of a provider's labels, and the sentence about it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.config import ConsensusSettings
from ucds.math.partitions import Partition
from ucds.target.guard import Evidence, weigh_labels

N, K = 800, 4
TRUTH = np.arange(N) % K
EVERY = np.arange(N)


def noisy(share: float, seed: int) -> Partition:
    rng = np.random.default_rng(seed)
    partition = rng.permutation(K)[TRUTH]
    lost = rng.random(N) < share
    partition[lost] = rng.integers(K, size=int(lost.sum()))
    return partition


OWN = [[noisy(0.05, seed)] for seed in range(5)]
EIGHT = np.arange(N) % 8
LUMPED = np.where(EIGHT == 7, 6, np.where((EIGHT == 0) & (EVERY % 16 == 0), 7, EIGHT))
"""Of eight groups, two are seen as one and one as two."""
SHUFFLED = np.random.default_rng(9).permutation(TRUTH)
HALF = TRUTH.copy()
"""Two of the four clusters are right, the other two are mixed: 1.5 of 2 bits."""
HALF[TRUTH > 1] = np.random.default_rng(9).permutation(TRUTH[TRUTH > 1])


def weigh(
    labels: Partition,
    rows: Partition = EVERY,
    own: list[list[Partition]] = OWN,
    agreed: Partition = TRUTH,
) -> Evidence:
    return weigh_labels(own, agreed, labels, rows, ConsensusSettings())


@pytest.mark.parametrize(
    ("labels", "use", "least", "most"),
    [(TRUTH, "consensus", 1.0, 1.2), (HALF, "consensus", 0.7, 0.84), (SHUFFLED, "own", -0.02, 0.02)],
    ids=["right", "half right", "shuffled"],
)
def test_trust_follows_what_the_labels_are_worth(
    labels: Partition, use: str, least: float, most: float
) -> None:
    found = weigh(labels)
    assert found.use == use
    assert least < found.share < most
    assert found.labelled == N


def test_labels_are_transferred_only_if_they_agree_and_show_groups_that_the_consensus_lacks() -> None:
    own = [[LUMPED], [7 - LUMPED]]
    taught = weigh(EIGHT, own=own, agreed=LUMPED)
    assert taught.use == "transferred"
    assert (taught.own_groups, taught.provider_groups) == (0, pytest.approx(1 / 8))
    same = weigh(LUMPED, own=own, agreed=LUMPED)
    assert (same.use, same.provider_groups) == ("consensus", 0)
    # What single clusterings differ by from their consensus is what to expect by chance.
    restless = weigh(EIGHT, own=[[EIGHT], [LUMPED]], agreed=LUMPED)
    assert (restless.use, restless.own_groups) == ("transferred", pytest.approx(1 / 16))
    assert weigh(EIGHT, own=[[EIGHT], [7 - EIGHT]], agreed=LUMPED).use == "consensus"
    strangers = EIGHT[np.random.default_rng(0).permutation(N)]
    assert weigh(strangers, own=own, agreed=LUMPED).use == "own"


def test_the_figures_are_means_of_adjusted_information() -> None:
    exact = [[TRUTH], [(TRUTH + 1) % K], [3 - TRUTH]]
    found = weigh(HALF, own=exact)
    assert found.own_agreement == pytest.approx(1)
    assert found.provider_agreement == pytest.approx(adjusted_mutual_info_score(TRUTH, HALF))
    assert found.provider_agreement == pytest.approx(0.75, abs=0.01)
    among = [adjusted_mutual_info_score(a, b) for [a] in OWN for [b] in OWN if a is not b]
    assert weigh(TRUTH).own_agreement == pytest.approx(np.mean(among))


def test_labels_as_good_as_ones_own_clusterings_are_trusted_however_blurred_these_are() -> None:
    blurred = [[noisy(0.4, seed)] for seed in range(5)]
    alike = weigh(noisy(0.4, 77), own=blurred)
    assert alike.provider_agreement < 0.25
    assert alike.use == "consensus"
    assert alike.share == pytest.approx(1, abs=0.1)


def test_the_edges_of_trust_belong_to_the_better_side() -> None:
    own = [[LUMPED], [7 - LUMPED]]
    share = weigh(EIGHT, own=own, agreed=LUMPED).share
    more = share + 1e-6
    for trusted, least, use in ((share, 0, "transferred"), (more, share, "consensus"), (more, more, "own")):
        settings = ConsensusSettings(trusted_agreement=trusted, least_agreement=least)
        found = weigh_labels(own, LUMPED, EIGHT, EVERY, settings)
        assert found.use == use


def test_only_the_first_clustering_of_a_space_counts_unless_there_is_one_space() -> None:
    several = [[first[0], SHUFFLED] for first in OWN]
    assert weigh(TRUTH, own=several).own_agreement == weigh(TRUTH).own_agreement
    assert weigh(TRUTH, own=several).provider_agreement == weigh(TRUTH).provider_agreement
    one = [[space[0] for space in OWN]]
    assert weigh(TRUTH, own=one) == weigh(TRUTH)
    lone = weigh(TRUTH, own=[[TRUTH]])  # nothing to compare with
    assert (lone.own_agreement, lone.use) == (1.0, "consensus")


def test_chance_is_that_of_the_samples_with_a_label() -> None:
    own = [[EIGHT], [LUMPED]]
    there = np.flatnonzero(~np.isin(EIGHT, (0, 6, 7)))  # where both clusterings are the same
    found = weigh(EIGHT[there], there, own=own, agreed=LUMPED)
    assert (found.own_groups, found.provider_groups) == (0, 0)
    assert weigh(EIGHT, own=own, agreed=LUMPED).own_groups == pytest.approx(1 / 16)


def test_names_mean_nothing() -> None:
    renamed = [[5 + (a + i) % K] for i, [a] in enumerate(OWN)]
    assert weigh(10 - HALF, own=renamed).share == pytest.approx(weigh(HALF).share)


@pytest.mark.parametrize(("labels", "use"), [(TRUTH, "consensus"), (SHUFFLED, "own")])
def test_labels_of_some_samples_are_weighed_on_those(labels: Partition, use: str) -> None:
    rows = np.sort(np.random.default_rng(2).choice(N, 100, replace=False))
    found = weigh(labels[rows], rows)
    assert (found.use, found.labelled) == (use, 100)
    right_there_only = np.where(np.isin(EVERY, rows), TRUTH, SHUFFLED)
    assert weigh(right_there_only[rows], rows) == weigh(TRUTH[rows], rows)


@pytest.mark.parametrize(
    ("labels", "use", "share"),
    [
        (TRUTH // 2, "consensus", 1 / 1.5),  # one bit of information, over the mean of one and two
        (TRUTH + K * (EVERY // K % 2), "consensus", 2 / 2.5),
        (np.zeros(N, int), "own", 0.0),
    ],
    ids=["coarser", "finer", "one cluster"],
)
def test_a_provider_may_have_another_number_of_clusters(labels: Partition, use: str, share: float) -> None:
    found = weigh(labels, own=[[TRUTH], [3 - TRUTH]])
    assert found.use == use
    assert found.share == pytest.approx(share, abs=2e-3)


def test_agreement_by_chance_is_none_however_few_the_samples() -> None:
    many = np.random.default_rng(0).integers(K, size=(200, 20))
    own = TRUTH[:20]
    shares = [weigh(labels, EVERY[:20], own=[[own]], agreed=own).share for labels in many]
    assert abs(np.mean(shares)) < 0.03


@pytest.mark.parametrize("transfer", ["own", "consensus", "transferred"])
@pytest.mark.parametrize("labels", [TRUTH, SHUFFLED], ids=["right", "shuffled"])
def test_a_setting_decides_and_the_evidence_stays(transfer: Transfer, labels: Partition) -> None:
    found = weigh_labels(OWN, TRUTH, labels, EVERY, ConsensusSettings(transfer=transfer))
    assert (found.use, found.decided) == (transfer, transfer)
    assert found.share == weigh(labels).share
    assert found.sentence.endswith(", because the setting 'transfer' says so")
    assert "%" not in found.sentence


def test_the_sentence_tells_use_and_percentages() -> None:
    found = Evidence("consensus", 0.8, 0.6, 0.1, 0.25, 50, "guarded")
    assert found.share == pytest.approx(0.75)
    for words in (
        "counted as one more clustering in the vote, because they agree",
        "75% as well as",
        "0.60 against 0.80",
        "25% of their groups",
        "groups, 10%",
    ):
        assert words in found.sentence
    assert "labels were not used" in replace(found, use="own").sentence
    assert "used as further coordinates of the clustering" in replace(found, use="transferred").sentence
    assert "120% as well" in replace(found, provider_agreement=0.96).sentence
    assert "\n" not in found.sentence


def test_evidence_is_written_as_json() -> None:
    found = weigh(HALF)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["sentence"] == found.sentence
    assert (again["use"], again["decided"], again["labelled"]) == ("consensus", "guarded", N)
    assert again["share"] == pytest.approx(again["provider_agreement"] / again["own_agreement"])


def test_clusterings_that_do_not_agree_at_all_divide_nothing_by_zero() -> None:
    nothing = [[np.zeros(N, int)], [TRUTH]]
    found = weigh(TRUTH, own=nothing)
    assert np.isfinite(found.share)
    assert "%" in found.sentence
