"""Finds the clusters of samples with the client's own model."""

from __future__ import annotations

from pathlib import Path

from ucds.choices import Sorting, require_choice
from ucds.data.sources import Source, place_of, require_there
from ucds.errors import InputError
from ucds.files import refuse_inside
from ucds.target.predictions import (
    UNSORTED,
    ClusterNames,
    Predictions,
    check_unused,
    require_csv,
    sort_into_folders,
)
from ucds.training.options import Compute
from ucds.training.run_folder import require_model


def predict(
    run: str | Path,
    images: Source,
    out: str | Path | None = None,
    *,
    sort_into: str | Path | None = None,
    sort_how: Sorting = "copy",
    names: str | Path | None = None,
    min_confidence: float = 0.0,
    compute: Compute | None = None,
) -> Predictions:
    """Find the cluster of each sample with the client's own model; ``ucds predict`` does the same.

    Args:
        run: folder of a finished target run.
        images: samples, see :func:`ucds.data.sources.find_samples`. Files that cannot be used are left out of
            what is returned and written: it goes by ids.
        out: table to write, in .csv; none if ``None``.
        sort_into: folder to make, with the images in one folder a cluster; none if ``None``.
        sort_how: ``"copy"`` or ``"link"``: the images in that folder are copies or symbolic links.
        names: file of names of the clusters, saved from the run's report; none if ``None``.
        min_confidence: confidence, 0 to 1, below which a sample gets
            :data:`ucds.target.predictions.UNSORTED` in place of a cluster, and its image goes into the folder
            :data:`ucds.target.predictions.UNSORTED_FOLDER`.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run, the samples or the names cannot be used, ``sort_into`` is in use or lies inside
            ``images``, ``out`` cannot be written, or ``min_confidence`` is no probability.
        DamagedFileError: the model file or the file of names cannot be read.
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence is a probability from 0 to 1, not {min_confidence}")
    out, folder = None if out is None else Path(out), None if sort_into is None else Path(sort_into)
    if folder is not None:
        check_unused(folder)
        require_choice("sort_how", sort_how, Sorting)
        if (place := place_of(images)) is not None:
            refuse_inside(folder, place)
    if out is not None:
        require_csv(out)
    require_model(Path(run))
    require_there(images)
    from ucds.data.images import ImageSamples  # they bring torch, which takes seconds
    from ucds.training.loaded import load

    model = load(run, role="target", compute=compute)
    known = {} if names is None else ClusterNames.load(names).of(model.stored)
    data = model.open(images)
    files = data.samples.files if isinstance(data.samples, ImageSamples) else None
    if folder is not None and files is None:
        raise InputError("--sort-into needs image files, not embeddings or pictures in memory")
    clusters, confidence = model.decide(data)
    clusters[confidence < min_confidence] = UNSORTED
    found = Predictions(data.samples.ids, clusters, confidence, known, model.n_clusters, files)
    if out is not None:
        found.save(out)
    if folder is not None:
        sort_into_folders(folder, found, sort_how)
    return found
