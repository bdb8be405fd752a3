"""Decides, without ground truth, how far to trust the labels of a provider.

Two questions, asked of clusterings of the target's own samples in several spaces:

- How far do the labels agree with them, in relation to how far they agree among themselves? Agreement is
  mutual information adjusted for chance, so that it means the same for a hundred samples and for ten
  thousand. Labels that agree with nothing are of other groups.
- Do the labels show groups that the consensus of these clusterings does not have? If they show no more
  than any of the clusterings does by chance, they differ in single samples only, and of those the target's
  own features know more than a model of other domains.

Only labels that pass both shape the clustering; the others have one voice at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.data.samples import IntArray
from ucds.math.partitions import Partition, share_unmatched

Use = Literal["own", "consensus", "transferred"]
"""The target's own clustering, the labels as one voice of many, or as part of the spaces."""


@dataclass(frozen=True)
class Evidence:
    """Why a provider's labels were used as they were.

    Attributes:
        use: what became of them.
        own_agreement: of the target's clusterings in different spaces, adjusted mutual information.
        provider_agreement: of the provider's labels with these.
        own_groups: share of a clustering's clusters that the consensus of all does not have, on average.
        provider_groups: share of the provider's clusters that this consensus does not have.
        labelled: samples that have a label.
        decided: "guarded", or what the configuration laid down.
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
    def teaches(self) -> bool:
        """Whether the provider sees groups that the target does not, more than by chance."""
        return self.provider_groups > self.own_groups

    @property
    def sentence(self) -> str:
        """What happened, for the target owner."""
        what = {
            "own": "the provider's labels were set aside",
            "consensus": "the provider's labels had one voice among the clusterings of your own samples",
            "transferred": "the provider's labels helped to shape the clustering",
        }[self.use]
        if self.decided != "guarded":
            return f"{what}, because the setting 'transfer' says so"
        agreement = (
            f"they agree with clusterings of your own samples {self.share:.0%} as well as these agree among "
            f"themselves (adjusted mutual information {self.provider_agreement:.2f} against "
            f"{self.own_agreement:.2f})"
        )
        groups = (
            f"{self.provider_groups:.0%} of their groups are new to the consensus of these (of a single "
            f"clustering's groups, {self.own_groups:.0%})"
        )
        return f"{what}, because {agreement} and {groups}"

    def to_dict(self) -> dict[str, Any]:
        """For a file, with the sentence."""
        return asdict(self) | {"share": self.share, "sentence": self.sentence}


def weigh_labels(
    own: Sequence[Sequence[Partition]],
    agreed: Partition,
    labels: Partition,
    rows: IntArray,
    *,
    trusted: float,
    least: float,
    transfer: Transfer = "guarded",
) -> Evidence:
    """Hold a provider's labels against clusterings of the target's own features.

    Args:
        own: clusterings ``(n,)`` by space; the agreement is that of the first of each space.
        agreed: ``(n,)`` consensus of all of them.
        labels: ``(m,)`` the provider's.
        rows: ``(m,)`` samples that they belong to.
        trusted: share of the own agreement from which on labels may shape the spaces.
        least: share from which on they have a voice.
        transfer: lay down the use, whatever is found.
    """
    # Spaces are compared with each other; with one space only, its clusterings are.
    several = [space[0] for space in own] if len(own) > 1 else list(own[0])
    pairs = [(a, b) for i, a in enumerate(several) for b in several[:i]]
    among = float(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs])) if pairs else 1.0
    found = Evidence(
        use="own",
        own_agreement=among,
        provider_agreement=float(np.mean([adjusted_mutual_info_score(a[rows], labels) for a in several])),
        own_groups=float(
            np.mean([share_unmatched(one[rows], agreed[rows]) for space in own for one in space])
        ),
        provider_groups=share_unmatched(labels, agreed[rows]),
        labelled=len(rows),
        decided=transfer,
    )
    if transfer != "guarded":
        return replace(found, use=transfer)
    if found.provider_agreement >= trusted * among and found.teaches:
        return replace(found, use="transferred")
    return replace(found, use="consensus" if found.provider_agreement >= least * among else "own")
