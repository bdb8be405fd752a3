"""Decides, without ground truth, how a provider's labels are used in clustering the target.

Two figures decide:

- The labels' agreement with clusterings of the target's own features in several spaces, in relation to the
  agreement of these among themselves. Agreement is mutual information adjusted for chance, so that it means
  the same for a hundred samples and for ten thousand. Labels that agree with nothing are of other groups.
- The share of the provider's clusters that do not occur in the consensus of these clusterings, in relation
  to the share that a single clustering has by chance. Labels without new clusters differ from the consensus
  in single samples only, and about those the target's own features are the better evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.config import ConsensusSettings
from ucds.data.samples import IntArray
from ucds.math.partitions import Partition, share_unmatched

Use = Literal["own", "consensus", "transferred"]
"""Use of the provider's labels.

- ``"own"``: they are not used; the target's own clusterings vote alone.
- ``"consensus"``: they count as one more clustering in the vote, with as many votes as a space has.
- ``"transferred"``: averaged over neighbours, they are further coordinates of every space, and clusterings
  in the spaces that are widened so join the vote.
"""

_SENTENCES: dict[Use, str] = {
    "own": "the provider's labels were not used",
    "consensus": "the provider's labels counted as one more clustering in the vote",
    "transferred": "the provider's labels were used as further coordinates of the clustering",
}


@dataclass(frozen=True)
class Evidence:
    """Use of a provider's labels, and the reasons.

    Attributes:
        use: use of the labels.
        own_agreement: adjusted mutual information of the target's clusterings in different spaces.
        provider_agreement: adjusted mutual information of the provider's labels with these clusterings.
        own_groups: share of a clustering's clusters that the consensus of all does not have, on average.
        provider_groups: share of the provider's clusters that this consensus does not have.
        labelled: number of samples that have a label.
        decided: ``"guarded"`` if the figures decided, else the use that the setting ``transfer`` names.
    """

    use: Use
    own_agreement: float
    provider_agreement: float
    own_groups: float
    provider_groups: float
    labelled: int
    decided: Transfer

    @property
    def share(self) -> float:
        """The provider's agreement in relation to the target's own."""
        return self.provider_agreement / max(self.own_agreement, 1e-9)

    @property
    def sentence(self) -> str:
        """The use and its reasons in one sentence for the client."""
        what = _SENTENCES[self.use]
        if self.decided != "guarded":
            return f"{what}, because the setting 'transfer' says so"
        return (
            f"{what}, because they agree with clusterings of your own samples {self.share:.0%} as well as "
            f"these agree among themselves (adjusted mutual information {self.provider_agreement:.2f} "
            f"against {self.own_agreement:.2f}) and {self.provider_groups:.0%} of their groups are new to "
            f"the consensus of these (of a single clustering's groups, {self.own_groups:.0%})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types, with share and sentence."""
        return asdict(self) | {"share": self.share, "sentence": self.sentence}


def weigh_labels(
    own: Sequence[Sequence[Partition]],
    agreed: Partition,
    labels: Partition,
    rows: IntArray,
    settings: ConsensusSettings,
) -> Evidence:
    """Compare a provider's labels with clusterings of the target's own features, and choose their use.

    Args:
        own: clusterings ``(n,)`` of each space; spaces are compared by the first of each.
        agreed: ``(n,)`` consensus of all of them.
        labels: ``(m,)`` provider's labels.
        rows: ``(m,)`` positions of the labelled samples.
        settings: least relative agreement for each use, or the use itself (``transfer``).
    """
    # With one space only, its clusterings are compared.
    several = [space[0] for space in own] if len(own) > 1 else list(own[0])
    pairs = [(a, b) for i, a in enumerate(several) for b in several[:i]]
    among = float(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs])) if pairs else 1.0
    unmatched = [share_unmatched(one[rows], agreed[rows]) for space in own for one in space]
    found = Evidence(
        use="own",
        own_agreement=among,
        provider_agreement=float(np.mean([adjusted_mutual_info_score(a[rows], labels) for a in several])),
        own_groups=float(np.mean(unmatched)),
        provider_groups=share_unmatched(labels, agreed[rows]),
        labelled=len(rows),
        decided=settings.transfer,
    )
    if settings.transfer != "guarded":
        return replace(found, use=settings.transfer)
    shows_new_groups = found.provider_groups > found.own_groups
    if shows_new_groups and found.provider_agreement >= settings.trusted_agreement * among:
        return replace(found, use="transferred")
    votes = found.provider_agreement >= settings.least_agreement * among
    return replace(found, use="consensus" if votes else "own")
