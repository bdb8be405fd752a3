"""Judges a clustering model without ground truth: how certain, how balanced, how many clusters live."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ucds.math.precision import at_least_single

COLLAPSED_SHARE = 0.5
"""A run whose predictions use fewer than this share of its clusters is called collapsed."""

SAMPLES_TO_TELL = 8
"""Samples a cluster from which on an empty cluster means something: by chance it is e^-8."""

SELECTION_SLACK = 0.05
"""Two evaluations count as equally informative when they differ by less than this share of log K."""


@dataclass(frozen=True)
class Evaluation:
    """What a model says of a whole set of samples at one moment of a stage.

    Attributes:
        step: training steps done.
        labels: ``(n,)`` int64 most probable cluster of each sample.
        marginal_entropy: entropy of the mean prediction, nats; ``log K`` when clusters are equally large.
        conditional_entropy: mean entropy of the predictions, nats; zero when every sample is certain.
        active_clusters: clusters to which at least one sample belongs.
        n_clusters: clusters of the model.
    """

    step: int
    labels: Tensor
    marginal_entropy: float
    conditional_entropy: float
    active_clusters: int
    n_clusters: int

    @property
    def information(self) -> float:
        """Mutual information of samples and labels, nats: the label-free criterion of model selection."""
        return self.marginal_entropy - self.conditional_entropy

    @property
    def warning(self) -> str | None:
        """One sentence when the clustering is unhealthy, else ``None``.

        A set with fewer samples than clusters cannot fill them all, and is judged by what it could fill.
        In a set of a few samples a cluster a living cluster may be empty by chance, so empty clusters
        are told of larger sets only.
        """
        fillable = min(self.n_clusters, len(self.labels))
        if self.active_clusters < COLLAPSED_SHARE * fillable:
            return (
                f"the clustering has collapsed: only {self.active_clusters} of {self.n_clusters} "
                "clusters are in use; try a lower learning rate, fewer clusters or another seed"
            )
        if self.active_clusters < fillable and len(self.labels) >= SAMPLES_TO_TELL * self.n_clusters:
            return f"{self.n_clusters - self.active_clusters} of {self.n_clusters} clusters are empty"
        return None


def assess(probabilities: Tensor, step: int) -> Evaluation:
    """Sum up the predictions ``(n, K)`` of a whole set after ``step`` training steps."""
    p = at_least_single(probabilities)
    labels = p.argmax(-1).cpu()
    return Evaluation(
        step=step,
        labels=labels,
        marginal_entropy=float(torch.special.entr(p.mean(0)).sum()),
        conditional_entropy=float(torch.special.entr(p).sum(-1).mean()),
        active_clusters=int((labels.bincount() > 0).sum()),
        n_clusters=p.shape[1],
    )


def select(evaluations: list[Evaluation]) -> int:
    """Position of the evaluation to keep: the latest one that is about as informative as the best.

    Among healthy snapshots the information differs by less than it means, and a stage that has come to
    the end of its learning-rate schedule is worth more than one in the middle. What the rule guards
    against is a model that loses its clusters on the way.
    """
    best = max(evaluation.information for evaluation in evaluations)
    slack = SELECTION_SLACK * math.log(evaluations[0].n_clusters)
    return max(i for i, e in enumerate(evaluations) if e.information >= best - slack)
