"""Judges a clustering model without ground truth: its certainty, balance and number of used clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ucds.gradients.pcd_loss import at_least_single

COLLAPSED_SHARE = 0.5
"""Share of the clusters; a model that uses fewer is called collapsed."""

SAMPLES_TO_TELL = 8
"""Samples a cluster from which on an empty cluster is reported: by chance its probability is e^-8."""

SELECTION_SLACK = 0.05
"""Share of log K; evaluations whose information differs by less count as equally good."""


@dataclass(frozen=True)
class Evaluation:
    """Summary of a model's predictions for a whole set of samples at one moment of a stage.

    Attributes:
        step: number of training steps done.
        labels: ``(n,)`` int64 most probable cluster of each sample.
        marginal_entropy: entropy of the mean prediction, nats; ``log K`` when clusters are equally large.
        conditional_entropy: mean entropy of the predictions, nats; zero when every sample is certain.
        active_clusters: number of clusters to which at least one sample belongs.
        n_clusters: number of clusters of the model, K.
    """

    step: int
    labels: Tensor
    marginal_entropy: float
    conditional_entropy: float
    active_clusters: int
    n_clusters: int

    @property
    def information(self) -> float:
        """Mutual information of samples and labels, nats; the criterion of model selection."""
        return self.marginal_entropy - self.conditional_entropy

    @property
    def warning(self) -> str | None:
        """One sentence when the model has collapsed or leaves clusters empty, else ``None``.

        A set with fewer samples than clusters is judged by the number of clusters that it can fill. In a
        small set a good cluster may be empty by chance, so empty clusters are reported for larger sets only.
        """
        fillable = min(self.n_clusters, len(self.labels))
        if self.active_clusters < COLLAPSED_SHARE * fillable:
            return (
                f"the clustering has collapsed: only {self.active_clusters} of {self.n_clusters} "
                "clusters are in use; try a lower learning rate, fewer clusters or another seed"
            )
        if self.active_clusters < fillable and len(self.labels) >= SAMPLES_TO_TELL * self.n_clusters:
            empty = self.n_clusters - self.active_clusters
            return f"{empty} of {self.n_clusters} clusters {'is' if empty == 1 else 'are'} empty"
        return None


def assess(probabilities: Tensor, step: int) -> Evaluation:
    """Summarise the predictions ``(n, K)`` of a whole set after ``step`` training steps."""
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
    """Return the position of the evaluation to keep: the latest that is about as informative as the best.

    Small differences in information do not matter, and a model at the end of the learning-rate schedule is
    better than one in the middle. The rule protects against a model that loses clusters during training.
    """
    best = max(evaluation.information for evaluation in evaluations)
    slack = SELECTION_SLACK * math.log(evaluations[0].n_clusters)
    return max(i for i, e in enumerate(evaluations) if e.information >= best - slack)
