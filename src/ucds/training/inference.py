"""Answers for whole sets of samples with a finished model."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ucds.backbones import Backbone
from ucds.data.dataset import Dataset
from ucds.training.features import frozen_features
from ucds.training.model_file import StoredModel
from ucds.training.prediction import encode, predict
from ucds.training.runtime import Runtime


def encode_samples(stored: StoredModel, data: Dataset, runtime: Runtime, *, batch_size: int = 64) -> Tensor:
    """Compute the bottleneck features of every sample, ``(n, width)`` fp32 on the runtime's device."""
    model = stored.model.to(runtime.device)
    return encode(model, data.samples, data.view, runtime, batch_size)


def cluster_probabilities(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    *,
    cache: Path | None = None,
    batch_size: int = 64,
) -> Tensor:
    """Find the probability of each cluster for every sample.

    A model whose backbone stayed frozen answers from cached features: those of its training data, and
    of whatever any model with the same backbone has seen, are there already.

    Args:
        stored: the model.
        data: samples and views that it takes.
        runtime: where to compute.
        cache: folder of frozen features; without it every sample goes through the backbone.
        batch_size: samples at a time.

    Returns:
        ``(n, K)`` fp32 on the runtime's device, in the order of the samples.
    """
    model, card = stored.model.to(runtime.device), stored.card
    if card.tune == "head" and card.backbone.input_size is not None and cache is not None:
        backbone = Backbone(model.encoder.backbone, card.backbone, card.weights)
        data = frozen_features(backbone, data, runtime, cache, batch_size=batch_size)
        model = model.head()
    return predict(model, data.samples, data.view, runtime, batch_size)
