"""Computes the features of a frozen backbone once, for ``tune = "head"``.

Features are stored under the content of the sample, the weights of the backbone and what computed them, so
all runs with the same backbone share them, whatever their seed, split, method and file names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from ucds.data.content import first_positions
from ucds.data.dataset import Dataset
from ucds.data.decode import DECODER_VERSION
from ucds.data.features import FeatureSamples
from ucds.data.parts import PartStore
from ucds.data.samples import SeenSamples
from ucds.data.vectors import VectorSamples
from ucds.encoders.spec import FUNCTION, IDENTITY, LENGTHS
from ucds.files import make_private
from ucds.gradients.runtime import Runtime
from ucds.math.arrays import FloatArray, IntArray
from ucds.networks.spec import Backbone
from ucds.training.encoding import FrozenEncoder, choose_encoder, describe_encoder


def frozen_features(
    backbone: Backbone, data: Dataset, runtime: Runtime, *, batch_size: int = 64, keep: bool = True
) -> Dataset:
    """Replace samples by their features under a frozen backbone, computed on the test view.

    Each of several processes computes a share. The cache gets the features and the graph that computes them;
    without one PyTorch computes, and features stay in memory. So do features that are not to be kept, and
    those of a module of the caller's own, because no name identifies what it computes.

    Returns:
        The same samples, domains and ids with vectors ``(n, width)`` fp32 as inputs; ``data`` itself if it
        has vectors already, which are embeddings or were computed in bulk.

    Raises:
        InputError: a feature is not finite.
        Interrupted: the run was asked to stop.
    """
    samples, cache = data.samples, runtime.compute.cache
    if backbone.spec.name == LENGTHS:
        return Dataset(SeenSamples(samples, lambda rows: backbone.module(torch.from_numpy(rows)).numpy()))
    takes_images = backbone.spec.input_size is not None
    if backbone.spec.name == IDENTITY or (takes_images and samples.kind != "images"):
        return data
    if cache is not None:
        make_private(cache)

    def example(count: int) -> FloatArray:
        return data.view.test(samples.read(np.arange(min(count, len(samples)))))

    encoder = choose_encoder(backbone, runtime.device, len(samples), example, runtime.compute, runtime.once)
    if cache is not None and keep and backbone.spec.name != FUNCTION:
        store = _open_store(encoder, cache)
        first = first_positions(samples.keys)  # each content once
        missing = first[store.rows_of(samples.keys)[first] < 0]
        runtime.wait_for_all()  # every process has counted before any of them adds rows
        if not runtime.once(lambda: len(missing) > 0 and not store.writable):
            share = missing[runtime.rank :: runtime.processes]
            extracted = _extract(encoder, data, runtime, share, batch_size)
            store.gather(([samples.keys[i] for i in index], features) for index, features in extracted)
            runtime.wait_for_all()
            store.refresh()
            return Dataset(FeatureSamples(samples, store))
    return _in_memory(encoder, data, runtime, batch_size)


def _in_memory(encoder: FrozenEncoder, data: Dataset, runtime: Runtime, batch_size: int) -> Dataset:
    """Compute all features, a share in each process, and send them to all processes."""
    samples, n = data.samples, len(data.samples)
    size = -(-n // runtime.processes)  # the last shares repeat samples, which are cut off again
    share = (np.arange(size) + runtime.rank * size) % n
    parts = [features for _, features in _extract(encoder, data, runtime, share, batch_size)]
    whole = runtime.pool(torch.from_numpy(np.concatenate(parts)).to(runtime.device))[:n]
    vectors = VectorSamples(whole.cpu().numpy(), samples.domain, samples.domain_names, samples.ids)
    return Dataset(vectors)


def _open_store(encoder: FrozenEncoder, cache: Path) -> PartStore:
    """Open the store of the features that an encoder of images gives."""
    what = describe_encoder(encoder.backbone)
    what |= {"package": version("ucds"), "computed_by": encoder.computed_by}
    kind = f"features {DECODER_VERSION} {json.dumps(what, sort_keys=True)}"
    return PartStore(cache, kind, (encoder.backbone.spec.width,), np.float32)


def _extract(
    encode: FrozenEncoder, data: Dataset, runtime: Runtime, positions: IntArray, batch_size: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    for start in range(0, len(positions), batch_size):
        runtime.watch("compute features", start, len(positions))
        index = positions[start : start + batch_size]
        yield index, encode(data.view.test(data.samples.read(index)))
    if len(positions):
        runtime.watch("compute features", len(positions), len(positions))
