"""Computes the features of a frozen backbone once, for ``tune = "head"``.

Features are stored under the content of the sample and the weights of the backbone, so all runs with the
same backbone share them, whatever their seed, split, method and file names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ucds.backbones import Backbone
from ucds.backbones.spec import IDENTITY, MODULE
from ucds.choices import EncoderRuntime
from ucds.data.cache import RowStore
from ucds.data.columns import first_positions
from ucds.data.dataset import Dataset
from ucds.data.decode import DECODER_VERSION
from ucds.data.features import FeatureSamples
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.math.arrays import FloatArray, IntArray
from ucds.models import state_digest
from ucds.training.devices import refuse_embeddings
from ucds.training.encoding import FrozenEncoder, describe_runtime
from ucds.training.runtime import Runtime

_MOST_ROWS = 2**40


def frozen_features(
    backbone: Backbone, data: Dataset, runtime: Runtime, cache: Path | None, *, batch_size: int
) -> Dataset:
    """Replace samples by their features under a frozen backbone, computed on the test view.

    Args:
        backbone: encoder without bottleneck, on the runtime's device.
        data: samples and views that the backbone takes.
        runtime: device, processes and the library that computes; each of several processes computes a share.
        cache: folder for features; ``None`` keeps them in memory. Features of a module of the caller's own
            stay in memory in any case, because no name identifies what it computes.
        batch_size: number of samples computed at a time.

    Returns:
        The same samples, domains and ids with vectors ``(n, width)`` fp32 as inputs; ``data`` itself if it
        has vectors already, which are embeddings or were computed in bulk.

    Raises:
        InputError: a feature is not finite; or ONNX Runtime is to compute, and there is no encoder, or it
            cannot run there.
        Interrupted: the run was asked to stop.
    """
    samples = data.samples
    refuse_embeddings(runtime.encoder_runtime, backbone.spec)
    if backbone.spec.name == IDENTITY or _are_features(data, backbone):
        return data
    if cache is None or backbone.spec.name == MODULE:
        everything = np.arange(len(samples))
        parts = [features for _, features in _extract(backbone, data, runtime, everything, batch_size)]
        vectors = VectorSamples(np.concatenate(parts), samples.domain, samples.domain_names, samples.ids)
        return Dataset(vectors, VectorView())
    store = feature_store(backbone, runtime.encoder_runtime, cache)
    # Samples whose content has no features yet, or damaged ones; each content once.
    rows = store.rows_of(samples.keys)
    known = np.flatnonzero(rows >= 0)
    rows[known[store.find_damaged(rows[known])]] = -1
    first = first_positions(samples.keys)
    missing = first[rows[first] < 0]
    runtime.wait_for_all()  # every process has counted before any of them adds rows
    share = missing[runtime.rank :: runtime.processes]
    for index, features in _extract(backbone, data, runtime, share, batch_size):
        store.append([samples.keys[i] for i in index], features)
    runtime.wait_for_all()
    return Dataset(FeatureSamples(samples, store), VectorView())


def feature_store(backbone: Backbone, encoder_runtime: EncoderRuntime, cache: Path) -> RowStore:
    """Open the store of the features that an encoder gives, as a runtime computes them.

    Args:
        backbone: encoder without bottleneck; not a module of the caller's own.
        encoder_runtime: library that computes.
        cache: folder for features.

    Raises:
        NoSpaceError: the folder can be neither written nor read as a store.
    """
    what = {
        "backbone": asdict(backbone.spec),
        "weights": state_digest(backbone.module),
        "package": version("ucds"),
        **describe_runtime(encoder_runtime),
    }
    kind = f"features {DECODER_VERSION} {json.dumps(what, sort_keys=True)}"
    return RowStore(cache, kind, (backbone.spec.width,), np.float32, _MOST_ROWS)


def _are_features(data: Dataset, backbone: Backbone) -> bool:
    """Return whether the samples of an encoder of images are vectors: their features, then."""
    return backbone.spec.input_size is not None and len(data.view.input_shape) == 1


def _extract(
    backbone: Backbone, data: Dataset, runtime: Runtime, positions: IntArray, batch_size: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    encode = FrozenEncoder(backbone, runtime.encoder_runtime)
    for start in range(0, len(positions), batch_size):
        runtime.watch("compute features", start, len(positions))
        index = positions[start : start + batch_size]
        yield index, encode(data.view.test(data.samples.read(index).to(runtime.device)))
    if len(positions):
        runtime.watch("compute features", len(positions), len(positions))
