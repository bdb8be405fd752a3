"""Labels millions of samples offline: one integer a sample, in shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ucds.bulk.assign import assign
from ucds.bulk.engines import BulkOptions
from ucds.bulk.job import BulkResult
from ucds.bulk.shards import Rows
from ucds.data.sources import Source
from ucds.labels.label_shards import LABELS
from ucds.training.model_file import load_model
from ucds.training.prediction import Decisions
from ucds.training.progress import Quiet, Reporter


def label_in_bulk(
    run: str | Path,
    images: Source,
    out: str | Path,
    *,
    options: BulkOptions | None = None,
    reporter: Reporter | None = None,
) -> BulkResult:
    """Label samples with a source model in bulk; ``ucds label --engine`` does the same.

    The labels are those of :func:`ucds.label`. :meth:`ucds.ClusterLabels.load` reads the folder. Features of
    images that are seen from their own mean stay in a folder beside it, ``OUT.features``, for the next model
    with this encoder; they are not for the client.

    Args:
        run: folder of a finished source run; its name signs the labels.
        images: samples, see :func:`ucds.bulk.finding.find_shards`; or a folder of features that
            :func:`ucds.features` computed with the encoder of this model.
        out: folder of the shards, or its address in an object store.
        options: engine, and how it works; a loop in this process if ``None``.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: the run, the samples or the folder cannot be used.
        DamagedFileError: the model file cannot be read.
        NoSpaceError: the folder cannot be written.
    """
    stored = load_model(Path(run), role="source")
    facts = {"provider": stored.card.name, "n_clusters": stored.card.n_clusters}
    options, reporter = options or BulkOptions(), reporter or Quiet()
    return assign(stored, images, out, LABELS, hard_labels, facts, options, reporter, recentred=True)


def hard_labels(found: Decisions) -> Rows:
    """Return the most probable cluster of each sample, and nothing else."""
    return {"label": found.clusters.numpy().astype(np.int32)}
