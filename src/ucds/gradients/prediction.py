"""Computes predictions and features of whole sets of samples by a network, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ucds.data.dataset import Dataset
from ucds.encoders.spec import IDENTITY
from ucds.gradients.runtime import Runtime
from ucds.networks.encoder import evaluation_mode
from ucds.networks.model import ClusteringModel, ModelOutput


@contextmanager
def threads_for(model: ClusteringModel) -> Iterator[None]:
    """Use one thread for a model without a backbone network, until the outermost block of this kind ends.

    Such a model has matrices so small that distributing them to threads takes longer than multiplying them,
    and many times longer on a busy machine.
    """
    before = torch.get_num_threads()
    if model.spec.name != IDENTITY or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def predict(model: ClusteringModel, data: Dataset, runtime: Runtime, batch_size: int = 64) -> Tensor:
    """Compute the cluster probabilities ``(n, K)`` of every sample, with the work shared between processes.

    The result is in single precision on the runtime's device, the same in every process.
    """
    return _compute_all(lambda out: out.logits.float().softmax(-1), model, data, runtime, batch_size)


def encode(model: ClusteringModel, data: Dataset, runtime: Runtime, batch_size: int = 64) -> Tensor:
    """Compute the bottleneck features ``(n, d_f)`` of every sample; otherwise like :func:`predict`."""
    return _compute_all(lambda out: out.features.float(), model, data, runtime, batch_size)


def _compute_all(
    choose: Callable[[ModelOutput], Tensor],
    model: ClusteringModel,
    data: Dataset,
    runtime: Runtime,
    batch_size: int,
) -> Tensor:
    """Compute the ``(b, m)`` rows that ``choose`` takes from each batch's outputs, split over processes."""
    n = len(data.samples)
    size = -(-n // runtime.processes)
    whole: Tensor | None = None  # allocated once: a list of all batches would take far more
    with evaluation_mode(model), threads_for(model), runtime.autocast():
        for start in range(0, size, batch_size):
            # All processes predict equally many samples; the surplus repeats samples and is cut off again.
            mine = (np.arange(start, min(start + batch_size, size)) + runtime.rank * size) % n
            inputs = torch.from_numpy(data.view.test(data.samples.read(mine)))
            rows = choose(model(inputs.to(runtime.device)))
            whole = rows.new_empty(size, *rows.shape[1:]) if whole is None else whole
            whole[start : start + len(rows)] = rows
        assert whole is not None  # there is at least one sample
        return runtime.pool(whole)[:n]
