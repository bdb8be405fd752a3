"""Decides, without ground truth, how much a provider's labels count in clustering the target.

The labels are one more vote. Where the own clusterings agree, labels of a small weight change nothing; where
they are divided, whether two groups are one or one group is two, the labels decide.

The decision is made in :attr:`Evidence.advised`, by the rules and figures of ``docs/consensus.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from ucds.choices import GuardChoices, Transfer
from ucds.math.arrays import IntArray
from ucds.math.consensus import Partition, Vote

Use = Literal["own", "opinion", "equal"]
"""Use of the provider's labels: set aside, decide where the own clusterings are divided two to one, or count
as much as all own clusterings together."""

GUARD = GuardChoices()

SAME = 0.99
"""Agreement of the own clusterings and of the labels from which labels are said to be not needed."""

_SENTENCES: Mapping[Use, str] = {
    "own": "the provider's labels were not used",
    "opinion": "the provider's labels decided where your own clusterings were divided",
    "equal": "the provider's labels counted as much as all your own clusterings together",
}


class KnownLabels(NamedTuple):
    """A provider's labels ``(m,)``, the positions of the samples that have them, and its number of clusters.

    Not all of the clusters need to occur.
    """

    values: Partition
    rows: IntArray
    n_clusters: int


@dataclass(frozen=True)
class Evidence:
    """Use of a provider's labels, and the reasons. Agreement is adjusted mutual information."""

    use: Use
    own_agreement: float  # of the target's clusterings in different spaces
    provider_agreement: float  # of the provider's labels with these clusterings
    own_consistency: float  # mean share of a sample's neighbours that the own consensus puts into its cluster
    provider_consistency: float  # mean share of a sample's neighbours that have its label
    n_clusters: int  # of the target
    provider_clusters: int  # of the provider, whether or not all of them occur
    labelled: int  # samples that have a label
    decided: Transfer  # "guarded" if the figures decided, else the use that the setting `transfer` names
    choices: GuardChoices = GUARD

    @property
    def weight(self) -> float:
        """Weight of the labels among all clusterings, 0 to 1."""
        weights = {"opinion": self.choices.opinion_weight, "equal": self.choices.equal_weight}
        return weights.get(self.use, 0.0)

    @property
    def consistency(self) -> float:
        """The provider's consistency in relation to the target's own."""
        return self.provider_consistency / max(self.own_consistency, 1e-9)

    @property
    def trust(self) -> float:
        """Relative consistency of the labels, less the own clusterings' agreement; to six decimals."""
        return round(self.consistency - self.own_agreement, 6)

    @property
    def agreement(self) -> float:
        """The labels' agreement with the own clusterings, in relation to that of these with each other."""
        return self.provider_agreement / max(self.own_agreement, 1e-9)

    @property
    def least_trust(self) -> float:
        """Trust from which labels are used, if no other rule sets them aside."""
        undivided = self.own_agreement >= self.choices.undivided
        return self.choices.equal_trust if undivided else self.choices.least_trust

    @property
    def advised(self) -> Use:
        """Use that the figures advise."""
        joins_groups = self.provider_clusters < self.n_clusters
        if joins_groups or self.agreement < self.choices.least_agreement or self.trust < self.least_trust:
            return "own"
        return "equal" if self.trust >= self.choices.equal_trust else "opinion"

    @property
    def sentence(self) -> str:
        """Use and reasons in one sentence for the client."""
        alike = min(self.own_agreement, self.provider_agreement) >= SAME
        if alike and self.use == "own" and self.decided == "guarded":
            return "the provider's labels were not needed: your own clusterings have the same groups"
        return f"{_SENTENCES[self.use]}, because {self._reason}"

    @property
    def _reason(self) -> str:
        """Name the rule that decided, with its figures."""
        if self.decided != "guarded":
            return "the setting 'transfer' says so"
        if self.provider_clusters < self.n_clusters:
            numbers = f"{self.provider_clusters} clusters and yours are {self.n_clusters}"
            return f"they have {numbers}: they join groups that your samples tell apart"
        if self.agreement < (least := self.choices.least_agreement):
            agreement = f"{max(self.agreement, 0):.0%} as well as these agree among themselves"
            return f"they agree with your own clusterings only {agreement} (used from {least:.0%})"
        return (
            f"neighbours have the same label {self.consistency:.0%} as often as they are in one cluster of "
            f"your own consensus, and your own clusterings agree among themselves to "
            f"{self.own_agreement:.2f} and with the labels to {self.provider_agreement:.2f} (trust "
            f"{self.trust:.2f}; used from {self.least_trust:.2f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types, with weight, trust and sentence."""
        entries = {name: value for name, value in asdict(self).items() if name != "choices"}
        return entries | {"weight": self.weight, "trust": self.trust, "sentence": self.sentence}


def weigh_labels(
    own: Vote,
    graph: sparse.csr_array,  # (n, n) row-stochastic: it averages over a sample and its neighbours
    labels: KnownLabels,
    transfer: Transfer = "guarded",
    choices: GuardChoices = GUARD,
) -> Evidence:
    """Compare a provider's labels with clusterings of the target's own features, and choose their use."""
    from sklearn.metrics import adjusted_mutual_info_score

    values, rows, provider_clusters = labels
    agreements = [adjusted_mutual_info_score(one[rows], values) for one in own.compared]
    found = Evidence(
        use="own",
        own_agreement=own.agreement,
        provider_agreement=float(np.mean(agreements)),
        own_consistency=consistency(graph, own.partition[rows], rows),
        provider_consistency=consistency(graph, values, rows),
        n_clusters=own.n_clusters,
        provider_clusters=provider_clusters,
        labelled=len(rows),
        decided=transfer,
        choices=choices,
    )
    return replace(found, use=found.advised if transfer == "guarded" else transfer)


def consistency(graph: sparse.csr_array, labels: Partition, rows: IntArray) -> float:
    """Compute the share of the neighbours of labelled samples that have the same label; 0 without neighbours.

    A sample itself does not count, and samples outside ``rows`` are no neighbours here.
    """
    among = graph[rows][:, rows].tocoo()
    weights = np.where(among.row == among.col, 0, among.data)
    same = labels[among.row] == labels[among.col]
    return float(weights[same].sum() / max(weights.sum(), 1e-12))
