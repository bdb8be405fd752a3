"""The source owner answers: one integer a sample, and nothing else."""

from __future__ import annotations

from pathlib import Path

from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.inference import cluster_probabilities
from ucds.training.model_file import StoredModel
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData


def label(
    stored: StoredModel, data: TrainingData, runtime: Runtime, *, cache: Path | None = None
) -> ClusterLabels:
    """Label every sample with its most probable cluster.

    Args:
        stored: the source model, signed with its name.
        data: somebody's samples.
        runtime: where to compute.
        cache: folder of frozen features, if any.
    """
    probabilities = cluster_probabilities(stored, data, runtime, cache=cache)
    hard = probabilities.argmax(-1).cpu().numpy()
    return ClusterLabels(data.samples.ids, hard, stored.card.n_clusters, stored.card.name)
