"""Computes the features of a frozen backbone once, for `--tune head`.

Features are stored under the content of the sample and the weights of the backbone, so every run
with the same backbone shares them, whatever its seed, split, method or file names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from ucds.backbones import Backbone
from ucds.backbones.spec import MODULE
from ucds.data.cache import RowStore
from ucds.data.dataset import Dataset
from ucds.data.decode import DECODER_VERSION
from ucds.data.features import FeatureSamples
from ucds.data.samples import FloatArray, IntArray, Samples, first_positions
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import InputError, Interrupted
from ucds.models import state_digest
from ucds.training.prediction import evaluation_mode
from ucds.training.progress import told_to
from ucds.training.runtime import Runtime

_MOST_ROWS = 2**40


def frozen_features(
    backbone: Backbone, data: Dataset, runtime: Runtime, cache: Path | None, *, batch_size: int
) -> Dataset:
    """Replace samples by their features under a frozen backbone, computed on the test view.

    Args:
        backbone: the encoder, without bottleneck; on the runtime's device.
        data: its samples and views.
        runtime: where to compute; with several processes each computes a share.
        cache: folder to keep features in; ``None`` keeps them in memory. Features of a module of the
            caller's own stay in memory in any case: no name says what it computes.
        batch_size: samples at a time.

    Returns:
        The same samples, domains and ids with vectors ``(n, width)`` fp32 as inputs.

    Raises:
        UserError: a feature is not finite.
    """
    samples = data.samples
    if cache is None or backbone.spec.name == MODULE:
        everything = np.arange(len(samples))
        parts = [features for _, features in _extract(backbone, data, runtime, everything, batch_size)]
        vectors = VectorSamples(np.concatenate(parts), samples.domain, samples.domain_names, samples.ids)
        return Dataset(vectors, VectorView())
    what = {
        "backbone": asdict(backbone.spec),
        "weights": state_digest(backbone.module),
        "package": version("ucds"),
    }
    kind = f"features {DECODER_VERSION} {json.dumps(what, sort_keys=True)}"
    store = RowStore(cache, kind, (backbone.spec.width,), np.float32, _MOST_ROWS)
    missing = _missing(samples, store)
    runtime.wait_for_all()  # every process has counted before any of them adds rows
    for index, features in _extract(
        backbone, data, runtime, missing[runtime.rank :: runtime.processes], batch_size
    ):
        store.append([samples.keys[i] for i in index], features)
    runtime.wait_for_all()
    return Dataset(FeatureSamples(samples, store), VectorView())


def _missing(samples: Samples, store: RowStore) -> IntArray:
    """Positions of the samples whose content has no features yet, each content once."""
    first = first_positions(samples.keys)
    rows = store.rows_of(samples.keys)
    return np.array(
        [i for i, key in enumerate(samples.keys) if rows[i] < 0 and first[key] == i], dtype=np.int64
    )


def _extract(
    backbone: Backbone, data: Dataset, runtime: Runtime, positions: IntArray, batch_size: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    progress = told_to(runtime.reporter, "compute features")
    with evaluation_mode(backbone.module), torch.no_grad():
        for start in range(0, len(positions), batch_size):
            if runtime.stop_requested:
                raise Interrupted
            index = positions[start : start + batch_size]
            inputs = data.view.test(data.samples.read(index).to(runtime.device))
            features = backbone.module(inputs).float().cpu().numpy()
            if not np.isfinite(features).all():
                raise InputError("the backbone's features are not finite: are its weights right?")
            yield index, features
            if runtime.rank == 0:
                progress(start + len(index), len(positions))
