"""Predicts whole sets of samples with a finished model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ucds.data.dataset import Dataset
from ucds.data.images import MemoryImages
from ucds.math.arrays import Watch
from ucds.models import ClusteringModel, ModelOutput
from ucds.training.features import frozen_features
from ucds.training.model_file import StoredModel
from ucds.training.prediction import Decisions, decide, outputs
from ucds.training.runtime import Runtime

FEWEST_TO_CENTRE = 32
"""Samples from which on the mean of a set says more about its domain than the means of other domains do."""

_BATCH = 64  # samples computed at a time
_BLOCK_BYTES = 2**21  # features in double precision that are summed at a time


def cluster_probabilities(stored: StoredModel, data: Dataset, runtime: Runtime) -> Tensor:
    """Compute the probability of each cluster for every sample; arguments as for :func:`model_outputs`.

    Returns:
        ``(n, K)`` fp32 on the runtime's device, in the order of the samples.
    """
    return model_outputs(stored, data, runtime).logits.softmax(-1)


def model_outputs(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    *,
    recentred: bool = False,
) -> ModelOutput:
    """Compute features and logits of every sample.

    A model whose backbone stayed frozen reads cached features: those of its training data, and of all
    samples that any model with the same backbone has seen, are there already.

    Args:
        stored: model with its description.
        data: samples and views that the model takes.
        runtime: device, processes and cache; without a cache every sample goes through the backbone. Features
            of images in memory are not stored there, as the same images may never come again.
        recentred: whether the samples, all of one domain, are seen from their own mean, if the model gains
            from it and there are at least :data:`FEWEST_TO_CENTRE`.

    Returns:
        ``(n, d_f)`` features and ``(n, K)`` logits of the samples in order, fp32 on the runtime's device.

    Raises:
        InputError: a feature or a logit is NaN or infinite.
    """
    model, data = _prepared(stored, data, runtime, recentred)
    return outputs(model, data.samples, data.view, runtime, _BATCH, watch=_watch_of(data, runtime))


def decisions(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    *,
    recentred: bool = False,
) -> Decisions:
    """Find the most probable cluster of every sample; arguments and errors as for :func:`model_outputs`."""
    model, data = _prepared(stored, data, runtime, recentred)
    return decide(model, data.samples, data.view, runtime, _BATCH, watch=_watch_of(data, runtime))


def _prepared(
    stored: StoredModel,
    data: Dataset,
    runtime: Runtime,
    recentred: bool,
) -> tuple[ClusteringModel, Dataset]:
    """Return the part of a model that is to be computed, and the samples that it takes."""
    model, card = stored.model.to(runtime.device), stored.card
    recentred = recentred and card.recentres and len(data.samples) >= FEWEST_TO_CENTRE
    encoded = data.samples.kind != "images"
    apart = encoded or recentred or runtime.compute.cache is not None
    if card.tune == "head" and card.backbone.input_size is not None and apart:
        keep = not isinstance(data.samples, MemoryImages)
        data = frozen_features(stored.backbone, data, runtime, batch_size=_BATCH, keep=keep)
        model = model.head()
    if recentred:
        model = recentre(model, data)
    return model, data


def _watch_of(data: Dataset, runtime: Runtime) -> Watch | None:
    """Return what is told of the progress: images go through the encoder, features take little time."""
    return runtime.watch if data.samples.kind == "images" else None


def recentre(model: ClusteringModel, data: Dataset) -> ClusteringModel:
    """Return a copy of a model's head that sees samples from their own mean.

    Args:
        model: layers above the backbone.
        data: features of the backbone, all of one domain.
    """
    total = torch.zeros(model.spec.width, dtype=torch.float64)
    step = max(1, _BLOCK_BYTES // (8 * model.spec.width))
    for start in range(0, len(data.samples), step):
        rows = data.samples.read(np.arange(start, min(start + step, len(data.samples))))
        total += normalize(rows.double(), dim=-1).sum(0)
    return model.recentred(total.float() / len(data.samples))
