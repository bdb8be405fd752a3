"""Predicts whole sets of samples with a finished model."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ucds.backbones import Backbone
from ucds.data.dataset import Dataset
from ucds.models import ModelOutput
from ucds.training.features import frozen_features
from ucds.training.model_file import StoredModel
from ucds.training.prediction import outputs
from ucds.training.runtime import Runtime


def cluster_probabilities(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    *,
    cache: Path | None = None,
    batch_size: int = 64,
) -> Tensor:
    """Compute the probability of each cluster for every sample; arguments as for :func:`model_outputs`.

    Returns:
        ``(n, K)`` fp32 on the runtime's device, in the order of the samples.
    """
    return model_outputs(stored, data, runtime, cache=cache, batch_size=batch_size).logits.softmax(-1)


def model_outputs(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    *,
    cache: Path | None = None,
    batch_size: int = 64,
) -> ModelOutput:
    """Compute features and logits of every sample.

    A model whose backbone stayed frozen reads cached features: those of its training data, and of all
    samples that any model with the same backbone has seen, are there already.

    Args:
        stored: model with its description.
        data: samples and views that the model takes.
        runtime: device and processes.
        cache: folder of frozen features; ``None`` sends every sample through the backbone.
        batch_size: number of samples computed at a time.

    Returns:
        ``(n, d_f)`` features and ``(n, K)`` logits of the samples in order, fp32 on the runtime's device.

    Raises:
        InputError: a feature or a logit is NaN or infinite.
    """
    model, card = stored.model.to(runtime.device), stored.card
    if card.tune == "head" and card.backbone.input_size is not None and cache is not None:
        backbone = Backbone(model.encoder.backbone, card.backbone, card.weights)
        data = frozen_features(backbone, data, runtime, cache, batch_size=batch_size)
        model = model.head()
    return outputs(model, data.samples, data.view, runtime, batch_size)
