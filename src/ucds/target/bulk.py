"""Finds the clusters of millions of samples with the client's own model, in shards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ucds.bulk.assign import assign
from ucds.bulk.engines import BulkOptions
from ucds.bulk.job import BulkResult
from ucds.bulk.shards import Rows
from ucds.data.sources import Source
from ucds.target.predictions import UNSORTED, require_probability
from ucds.training.model_file import load_model
from ucds.training.prediction import Decisions
from ucds.training.progress import Quiet, Reporter


def predict_in_bulk(
    run: str | Path,
    images: Source,
    out: str | Path,
    *,
    min_confidence: float = 0.0,
    options: BulkOptions | None = None,
    reporter: Reporter | None = None,
) -> BulkResult:
    """Find the cluster of each sample in bulk; ``ucds predict --engine`` does the same.

    The shards have the columns sample, content, cluster and confidence, as :func:`ucds.predict` finds them.

    Args:
        run: folder of a finished target run.
        images: samples, see :func:`ucds.bulk.finding.find_shards`; or a folder of features that
            :func:`ucds.features` computed with the encoder of this model.
        out: folder of the shards, or its address in an object store.
        min_confidence: confidence, 0 to 1, below which a sample gets
            :data:`ucds.target.predictions.UNSORTED` in place of a cluster.
        options: engine, and how it works; a loop in this process if ``None``.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: the run, the samples or the folder cannot be used, or ``min_confidence`` is no
            probability.
        DamagedFileError: the model file cannot be read.
        NoSpaceError: the folder cannot be written.
    """
    require_probability(min_confidence)
    stored = load_model(Path(run), role="target")
    facts = {
        "model": stored.card.name,
        "n_clusters": stored.card.n_clusters,
        "min_confidence": min_confidence,
    }
    answer = partial(clusters, min_confidence=min_confidence)
    return assign(
        stored, images, out, "clusters", answer, facts, options or BulkOptions(), reporter or Quiet()
    )


def clusters(found: Decisions, *, min_confidence: float) -> Rows:
    """Return the most probable cluster of each sample and the confidence in it.

    Args:
        found: clusters of m samples.
        min_confidence: confidence below which a sample is left without a cluster.
    """
    numbers, confidence = found.clusters.numpy().astype(np.int32), found.confidence.numpy()
    numbers[confidence < min_confidence] = UNSORTED
    return {"cluster": numbers, "confidence": confidence}
