"""The result of a stage, and evaluations of its model without ground truth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ucds.math.arrays import FloatArray, IntArray
from ucds.showing import shows

COLLAPSED_SHARE = 0.5
"""Share of the clusters; a model that uses a smaller share is called collapsed."""

SAMPLES_TO_TELL = 8
"""Samples per cluster from which an empty cluster is reported: by chance, its probability is e^-8."""

SELECTION_SLACK = 0.05
"""Share of log K; evaluations whose mutual information differs by less count as equally good."""

_BLOCK = 2**16  # samples whose entropies are computed at a time


@shows()
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
    labels: IntArray
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

        For a set with fewer samples than clusters, the number of clusters that it can fill counts. In a small
        set, a good cluster may be empty by chance, so empty clusters are reported for larger sets only.
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


@shows("name", "selected", "evaluations", "seconds")
@dataclass(frozen=True)
class StageResult:
    """Result of a finished stage, without the model.

    Attributes:
        name: name of the stage.
        evaluations: evaluations in order, by default ten per stage.
        selected: position of the evaluation whose model was kept.
        proportions: ``(D, K)`` sizes of the clusters in each domain, at that evaluation.
        seconds: time spent in the stage, over all resumed parts.
        assignments: ``(n, K)`` share of each cluster in each sample, rows sum to 1, if the stage clusters
            features without training; ``None`` for other stages.
    """

    name: str
    evaluations: list[Evaluation]
    selected: int
    proportions: FloatArray
    seconds: float
    assignments: FloatArray | None = None


def assess(probabilities: FloatArray, step: int = 0) -> Evaluation:
    """Summarise the predictions ``(n, K)`` of a whole set after ``step`` training steps."""
    blocks = np.split(probabilities, range(_BLOCK, len(probabilities), _BLOCK))
    labels = probabilities.argmax(1)
    return Evaluation(
        step=step,
        labels=labels,
        marginal_entropy=_entropy(probabilities.mean(0, dtype=np.float64)),
        conditional_entropy=sum(map(_entropy, blocks)) / len(probabilities),
        active_clusters=len(np.unique(labels)),
        n_clusters=probabilities.shape[1],
    )


def _entropy(shares: FloatArray | np.ndarray) -> float:
    """Compute the sum of the entropies of one or several distributions, nats."""
    return -float((shares * np.log(np.maximum(shares, np.finfo(np.float32).tiny))).sum(dtype=np.float64))


def select(evaluations: list[Evaluation]) -> int:
    """Return the position of the evaluation to keep: the latest that is about as good as the best one.

    Small differences in information do not matter, and a model at the end of the learning-rate schedule is
    better than one in the middle. The rule protects against a model that loses clusters during training.
    """
    best = max(evaluation.information for evaluation in evaluations)
    slack = SELECTION_SLACK * math.log(evaluations[0].n_clusters)
    return max(i for i, e in enumerate(evaluations) if e.information >= best - slack)
