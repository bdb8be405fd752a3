"""Decides, without ground truth, how much a provider's labels count in clustering the target.

The labels are one more clustering of the samples, with a weight beside all clusterings of the target's own.
The weight acts cluster by cluster: where the own clusterings agree, labels of a small weight change nothing;
where they are divided, whether two groups are one or one group is two, the labels decide.

The guard measures three things:

- *Consistency*: how often neighbours in the target's features have the same label, in relation to how often
  they are in one cluster of the own consensus. Labels of other groups, and wrong labels, are less consistent.
- *Own agreement*: mutual information, adjusted for chance, of the own clusterings with each other. Labels
  whose consistency is larger than the own agreement are trusted.
- *Agreement* of the labels with the own clusterings, in relation to the own agreement. Labels that agree far
  less than the own clusterings do are set aside, unless they are highly consistent.

Where the own clusterings agree nearly fully, labels of little trust are set aside too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.math.arrays import IntArray
from ucds.math.partitions import Partition
from ucds.math.vote import Vote, agreement_of_spaces, compared

Use = Literal["own", "hint", "opinion", "equal", "adopted"]
"""Use of the provider's labels, see :data:`WEIGHTS`."""

WEIGHTS: Mapping[Use, float] = {"own": 0.0, "hint": 0.2, "opinion": 0.35, "equal": 0.5, "adopted": 0.7}
"""Weight of the labels among all clusterings.

- ``"own"``: the labels are set aside; the target's own clusterings decide alone.
- ``"hint"``: the labels decide where the own clusterings are about equally divided.
- ``"opinion"``: the labels decide where the own clusterings are divided two to one.
- ``"equal"``: the labels count as much as all own clusterings together, and decide where these are not of one
  mind.
- ``"adopted"``: the labels decide; the own clusterings correct samples whose neighbours have other labels.
"""

LEAST_TRUST: Mapping[Use, float] = {"adopted": 0.40, "equal": 0.08, "opinion": 0.0, "hint": -0.05}
"""Trust from which labels are used so; less than the last sets them aside. Labels as consistent as own
clusterings that agree fully have a trust of 0: nothing speaks for them, and nothing against them.
``docs/consensus-results.md`` says on which tasks these values were chosen and confirmed."""

LEAST_AGREEMENT, LEAST_CONSISTENCY = 0.65, 0.85
"""Labels are set aside if they agree with the own clusterings less than 0.65 times as well as these agree
with each other, unless they are at least 0.85 times as consistent. Where the own clusterings agree little,
wrong labels would be trusted otherwise."""

UNDIVIDED = 0.9
"""Agreement of the own clusterings from which labels need the least trust of ``"equal"``. Labels of less
trust would join and split groups that the own clusterings find in every space: with ten classes of Office-31,
where these agree so well, they cost 10 points on amazon and 11 on webcam."""

SAME = 0.99
"""Agreement of the own clusterings, and of the labels with them, from which labels are said to be not needed.
They are the groups that the client has found without them."""

_SENTENCES: dict[Use, str] = {
    "own": "the provider's labels were not used",
    "hint": "the provider's labels decided where your own clusterings were equally divided",
    "opinion": "the provider's labels decided where your own clusterings were divided",
    "equal": "the provider's labels counted as much as all your own clusterings together",
    "adopted": "the provider's labels were adopted, and corrected by your own clusterings",
}


@dataclass(frozen=True)
class Evidence:
    """Use of a provider's labels, and the reasons.

    Attributes:
        use: use of the labels.
        own_agreement: adjusted mutual information of the target's clusterings in different spaces.
        provider_agreement: adjusted mutual information of the provider's labels with these clusterings.
        own_consistency: share of a sample's neighbours that the own consensus puts into its cluster, on
            average.
        provider_consistency: share of a sample's neighbours that have its label, on average.
        n_clusters: number of clusters of the target.
        provider_clusters: number of clusters of the provider, whether or not all of them occur.
        labelled: number of samples that have a label.
        decided: ``"guarded"`` if the figures decided, else the use that the setting ``transfer`` names.
        regrouped: share of the own consensus' clusters that the labels joined or split; ``None`` if unknown.
    """

    use: Use
    own_agreement: float
    provider_agreement: float
    own_consistency: float
    provider_consistency: float
    n_clusters: int
    provider_clusters: int
    labelled: int
    decided: Transfer
    regrouped: float | None = None

    @property
    def weight(self) -> float:
        """Weight of the labels among all clusterings, 0 to 1."""
        return WEIGHTS[self.use]

    @property
    def consistency(self) -> float:
        """The provider's consistency in relation to the target's own."""
        return self.provider_consistency / max(self.own_consistency, 1e-9)

    @property
    def trust(self) -> float:
        """Figure that decides: relative consistency of the labels, less the own clusterings' agreement.

        Six decimals: where all clusterings are equal it is exactly 0, the least trust of an opinion, and must
        not fall below it by the rounding of a sum.
        """
        return round(self.consistency - self.own_agreement, 6)

    @property
    def agreement(self) -> float:
        """The labels' agreement with the own clusterings, in relation to that of these with each other."""
        return self.provider_agreement / max(self.own_agreement, 1e-9)

    @property
    def least_trust(self) -> float:
        """Trust from which labels are used, if they agree enough with the own clusterings."""
        return LEAST_TRUST["equal" if self.own_agreement >= UNDIVIDED else "hint"]

    @property
    def advised(self) -> Use:
        """Use that the figures advise."""
        if self.joins_groups or self.disagrees or self.trust < self.least_trust:
            return "own"
        return next(use for use, least in LEAST_TRUST.items() if self.trust >= least)

    @property
    def joins_groups(self) -> bool:
        """Whether the provider has fewer clusters: its labels join groups that the target tells apart."""
        return self.provider_clusters < self.n_clusters

    @property
    def disagrees(self) -> bool:
        """Whether the labels agree too little with the own clusterings, and are not consistent either."""
        return self.agreement < LEAST_AGREEMENT and self.consistency < LEAST_CONSISTENCY

    @property
    def sentence(self) -> str:
        """The use and its reasons in one sentence for the client."""
        alike = min(self.own_agreement, self.provider_agreement) >= SAME
        if alike and self.use == "own" and self.decided == "guarded":
            return "the provider's labels were not needed: your own clusterings have the same groups"
        what = _SENTENCES[self.use]
        if self.regrouped is not None:
            what += f" (they joined or split {self.regrouped:.0%} of your groups)"
        return f"{what}, because {self._reason}"

    @property
    def _reason(self) -> str:
        """Name the rule that decided, with its figures."""
        if self.decided != "guarded":
            return "the setting 'transfer' says so"
        if self.joins_groups:
            return (
                f"they have {self.provider_clusters} clusters and yours are {self.n_clusters}: they join "
                "groups that your samples tell apart"
            )
        if self.disagrees:
            agreement = f"{max(self.agreement, 0):.0%} as well as these agree among themselves"
            return f"they agree with your own clusterings only {agreement} (used from {LEAST_AGREEMENT:.0%})"
        return (
            f"neighbours have the same label {self.consistency:.0%} as often as they are in "
            f"one cluster of your own consensus, and your own clusterings agree among themselves to "
            f"{self.own_agreement:.2f} and with the labels to {self.provider_agreement:.2f} (trust "
            f"{self.trust:.2f}; used from {self.least_trust:.2f}, adopted from "
            f"{LEAST_TRUST['adopted']:.2f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types, with weight, trust and sentence."""
        return asdict(self) | {"weight": self.weight, "trust": self.trust, "sentence": self.sentence}


def weigh_labels(
    own: Vote,
    graph: sparse.csr_array,
    labels: Partition,
    rows: IntArray,
    *,
    n_clusters: int,
    provider_clusters: int,
    transfer: Transfer = "guarded",
) -> Evidence:
    """Compare a provider's labels with clusterings of the target's own features, and choose their use.

    Labels of fewer clusters than the target has are set aside: they join groups that the target tells apart.

    Args:
        own: clusterings ``(n,)`` of each space, and their consensus; spaces are compared by the first
            clustering of each, which has K clusters.
        graph: ``(n, n)`` row-stochastic matrix that averages over a sample and its neighbours.
        labels: ``(m,)`` provider's labels.
        rows: ``(m,)`` positions of the labelled samples.
        n_clusters: number of clusters of the target.
        provider_clusters: number of clusters of the provider, whether or not all of them occur.
        transfer: use of the labels, or ``"guarded"``.
    """
    agreements = [adjusted_mutual_info_score(a[rows], labels) for a in compared(own.spaces)]
    found = Evidence(
        use="own",
        own_agreement=agreement_of_spaces(own.spaces),
        provider_agreement=float(np.mean(agreements)),
        own_consistency=consistency(graph, own.partition[rows], rows),
        provider_consistency=consistency(graph, labels, rows),
        n_clusters=n_clusters,
        provider_clusters=provider_clusters,
        labelled=len(rows),
        decided=transfer,
    )
    return replace(found, use=found.advised if transfer == "guarded" else transfer)


def consistency(graph: sparse.csr_array, labels: Partition, rows: IntArray) -> float:
    """Compute the share of the samples' neighbours that have their label; 0 if no sample has a neighbour.

    Args:
        graph: ``(n, n)`` weights of neighbours; that of a sample itself does not count.
        labels: ``(m,)`` labels.
        rows: ``(m,)`` positions of the labelled samples; the other samples are no neighbours here.
    """
    among = graph[rows][:, rows].tocoo()
    weights = np.where(among.row == among.col, 0, among.data)
    same = labels[among.row] == labels[among.col]
    return float(weights[same].sum() / max(weights.sum(), 1e-12))
