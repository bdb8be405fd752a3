"""Computes the features of encoders once, and keeps them.

Features are stored by the content of the sample, the weights of the encoder and the program that computed
them. So all runs with the same encoder share them, whatever their seed, split, method and file names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ucds.data.content import first_positions
from ucds.data.dataset import Dataset
from ucds.data.decode import DECODER_VERSION
from ucds.data.features import FeatureSamples
from ucds.data.parts import PartStore
from ucds.data.samples import SeenSamples
from ucds.data.vectors import VectorSamples
from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import IDENTITY, LENGTHS
from ucds.files import make_private
from ucds.math.arrays import FloatArray, IntArray, Watch
from ucds.training.options import Compute

BATCH = 64
"""Samples that an encoder takes at a time."""


def takes_features(encoder: Encoder, data: Dataset) -> bool:
    """Return whether samples already are features of the encoder: embeddings, or computed in bulk."""
    takes_images = encoder.spec.input_size is not None
    return encoder.spec.name == IDENTITY or (takes_images and data.samples.kind != "images")


def frozen_features(
    encoder: Encoder,
    data: Dataset,
    compute: Compute,
    watch: Watch | None = None,
    *,
    batch_size: int = BATCH,
    keep: bool = True,
) -> Dataset:
    """Replace samples by their features under an encoder, computed on the test view.

    They are kept in the cache, if there is one. Features that are not to be kept stay in memory, and so do
    those of an encoder without a digest, because nothing tells what it computes. ``data`` that has features
    already is returned as it is.
    """
    samples, cache = data.samples, compute.cache
    if takes_features(encoder, data):
        return data
    if encoder.spec.name == LENGTHS:
        return Dataset(SeenSamples(samples, encoder))
    encoder = encoder.on(compute.accelerator, compute.precision)
    if cache is not None and keep and encoder.digest:
        make_private(cache)
        store = _open_store(encoder, cache)
        first = first_positions(samples.keys)  # each content once
        missing = first[store.rows_of(samples.keys)[first] < 0]
        if not len(missing) or store.writable:
            parts = _extract(encoder, data, missing, batch_size, watch)
            store.gather(([samples.keys[i] for i in index], features) for index, features in parts)
            store.refresh()
            return Dataset(FeatureSamples(samples, store))
    rows = _extract(encoder, data, np.arange(len(samples)), batch_size, watch)
    whole = np.empty((len(samples), encoder.spec.width), np.float32)
    for index, features in rows:
        whole[index] = features
    return Dataset(VectorSamples(whole, samples.domain, samples.domain_names, samples.ids))


def read_all(features: Dataset) -> FloatArray:
    """Read the features ``(n, d)`` of all samples."""
    vectors: FloatArray = features.samples.read(np.arange(len(features.samples)))
    return vectors


def _open_store(encoder: Encoder, cache: Path) -> PartStore:
    """Open the store of the features that an encoder gives."""
    what = encoder.describe() | {"package": version("ucds"), "computed_by": encoder.computed_by}
    kind = f"features {DECODER_VERSION} {json.dumps(what, sort_keys=True)}"
    return PartStore(cache, kind, (encoder.spec.width,), np.float32)


def _extract(
    encode: Encoder, data: Dataset, positions: IntArray, batch_size: int, watch: Watch | None
) -> Iterator[tuple[IntArray, FloatArray]]:
    total = len(positions)
    for start in range(0, total, batch_size):
        if watch is not None:
            watch("compute features", start, total)
        index = positions[start : start + batch_size]
        yield index, encode(data.view.test(data.samples.read(index)))
    if total:
        encode.rest()
        if watch is not None:
            watch("compute features", total, total)
