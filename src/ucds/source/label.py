"""The source owner answers: one integer a sample, and nothing else."""

from __future__ import annotations

from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.model_file import StoredModel
from ucds.training.prediction import predict
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData


def label(
    stored: StoredModel, data: TrainingData, runtime: Runtime, *, batch_size: int = 256
) -> ClusterLabels:
    """Label every sample with its most probable cluster.

    Args:
        stored: the source model, signed with its name.
        data: somebody's samples.
        runtime: where to compute.
        batch_size: samples at a time.
    """
    model = stored.model.to(runtime.device)
    probabilities = predict(model, data.samples, data.view, runtime, batch_size)
    hard = probabilities.argmax(-1).cpu().numpy()
    return ClusterLabels(data.samples.ids, hard, stored.card.n_clusters, stored.card.name)
