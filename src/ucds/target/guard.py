"""Decides, without ground truth, how far to trust the labels of a provider.

The target's samples are clustered in several spaces. How far those clusterings agree among themselves
says how clear the groups are at all; how far the provider's labels agree with them, in relation to that,
says whether the provider sees the same groups. Agreement is mutual information adjusted for chance, so
that the measure means the same for a hundred samples and for ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from ucds.choices import Transfer
from ucds.data.samples import IntArray
from ucds.partitions import Partition

Use = Literal["own", "consensus", "transferred"]
"""The target's own clustering, the labels as one voice of many, or as part of the spaces."""


@dataclass(frozen=True)
class Evidence:
    """Why a provider's labels were used as they were.

    Attributes:
        use: what became of them.
        own_agreement: of the target's clusterings in different spaces, adjusted mutual information.
        provider_agreement: of the provider's labels with these.
        labelled: samples that have a label.
        decided: "guarded", or what the configuration laid down.
    """

    use: Use
    own_agreement: float
    provider_agreement: float
    labelled: int
    decided: Transfer

    @property
    def share(self) -> float:
        """The provider's agreement in relation to the target's own."""
        return self.provider_agreement / max(self.own_agreement, 1e-9)

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
        return (
            f"{what}, because they agree with clusterings of your own samples {self.share:.0%} as well as "
            f"these agree among themselves (adjusted mutual information {self.provider_agreement:.2f} "
            f"against {self.own_agreement:.2f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """For a file, with the sentence."""
        return asdict(self) | {"share": self.share, "sentence": self.sentence}


def weigh_labels(
    own: Sequence[Sequence[Partition]],
    labels: Partition,
    rows: IntArray,
    *,
    trusted: float,
    least: float,
    transfer: Transfer = "guarded",
) -> Evidence:
    """Hold a provider's labels against clusterings of the target's own features.

    Args:
        own: clusterings ``(n,)`` by space; the first of each space is compared.
        labels: ``(m,)`` the provider's.
        rows: ``(m,)`` samples that they belong to.
        trusted: share of the own agreement from which on labels shape the spaces.
        least: share from which on they have a voice.
        transfer: lay down the use, whatever is found.
    """
    # Spaces are compared with each other; with one space only, its clusterings are.
    several = [space[0] for space in own] if len(own) > 1 else list(own[0])
    pairs = [(a, b) for i, a in enumerate(several) for b in several[:i]]
    among = float(np.mean([adjusted_mutual_info_score(a, b) for a, b in pairs])) if pairs else 1.0
    provider = float(np.mean([adjusted_mutual_info_score(a[rows], labels) for a in several]))
    use: Use
    if transfer != "guarded":
        use = transfer
    elif provider >= trusted * among:
        use = "transferred"
    else:
        use = "consensus" if provider >= least * among else "own"
    return Evidence(use, among, provider, len(rows), transfer)
