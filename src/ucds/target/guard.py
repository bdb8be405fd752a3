"""Decides, without ground truth, how much a provider's labels count in clustering the target.

The labels are one more vote. Where the client's own clusterings agree, labels of a small weight change
nothing. Where they are divided on whether two groups are one, the labels decide.

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
"""Use of the provider's labels: they are set aside, decide where the client's own clusterings are divided
two to one, or count as much as all of these together."""

GUARD = GuardChoices()

SAME = 0.99
"""Least agreement, among the client's own clusterings and with the labels, at which labels are not needed."""

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
        """Consistency of the provider's labels, divided by that of the client's own consensus."""
        return self.provider_consistency / max(self.own_consistency, 1e-9)

    @property
    def trust(self) -> float:
        """Relative consistency of the labels minus the agreement of the client's clusterings (six digits)."""
        return round(self.consistency - self.own_agreement, 6)

    @property
    def agreement(self) -> float:
        """Agreement of the labels with the client's clusterings, divided by the agreement among these."""
        return self.provider_agreement / max(self.own_agreement, 1e-9)

    @property
    def least_trust(self) -> float:
        """Least trust at which labels are used, if no other rule sets them aside."""
        undivided = self.own_agreement >= self.choices.undivided
        return self.choices.equal_trust if undivided else self.choices.least_trust

    @property
    def advised(self) -> Use:
        """Use of the labels that the figures advise."""
        joins_groups = self.provider_clusters < self.n_clusters
        if joins_groups or self.agreement < self.choices.least_agreement or self.trust < self.least_trust:
            return "own"
        return "equal" if self.trust >= self.choices.equal_trust else "opinion"

    @property
    def sentence(self) -> str:
        """One sentence for the client: how the labels were used, and why."""
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
            numbers = f"{self.provider_clusters} clusters and you have {self.n_clusters}"
            return f"they have {numbers}: they join groups that differ in your samples"
        if self.agreement < (least := self.choices.least_agreement):
            agreement = f"{max(self.agreement, 0):.0%} as well as these agree with each other"
            return f"they agree with your own clusterings only {agreement} (needed: {least:.0%})"
        return (
            f"neighbours share a label {self.consistency:.0%} as often as they share a cluster of "
            f"your own consensus, and your own clusterings agree with each other to "
            f"{self.own_agreement:.2f} and with the labels to {self.provider_agreement:.2f} (trust "
            f"{self.trust:.2f}; needed: {self.least_trust:.2f})"
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

    A sample is not its own neighbour here, and samples outside ``rows`` do not count.
    """
    among = graph[rows][:, rows].tocoo()
    weights = np.where(among.row == among.col, 0, among.data)
    same = labels[among.row] == labels[among.col]
    return float(weights[same].sum() / max(weights.sum(), 1e-12))
