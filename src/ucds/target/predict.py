"""Finds the clusters of samples with the client's own model."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ucds.arguments import checked
from ucds.choices import Sorting
from ucds.data.content import KEY_BYTES, KEY_TYPE, keys_of
from ucds.data.folders import Scan
from ucds.data.sources import Source, find_samples, place_of, require_there
from ucds.data.vectors import read_arrays
from ucds.errors import InputError
from ucds.files import refuse_inside, require_writable
from ucds.target.predictions import (
    UNSORTED,
    Predictions,
    read_names,
    read_sorting,
    require_room,
    sort_into_folders,
)
from ucds.training.options import Compute
from ucds.training.run_folder import CENTRES_FILE, VOTES_FILE, files_read, require_model

if TYPE_CHECKING:
    from ucds.math.arrays import FloatArray
    from ucds.target.remembered import Remembered
    from ucds.training.loaded import Model


@checked
def predict(
    run: str | Path,
    images: Source,
    out: str | Path | None = None,
    *,
    sort_into: str | Path | None = None,
    sort_how: Sorting = "copy",
    about: str | Path | None = None,
    min_confidence: float = 0.0,
    compute: Compute | None = None,
) -> Predictions:
    """Find the cluster of each sample with the client's own model; ``ucds predict`` does the same.

    The samples of a run that was reviewed or updated keep the clusters that they had at its end. New samples
    get a p-value: how well they fit what the run knows.

    Args:
        run: folder of a finished target run.
        images: samples, see :func:`ucds.data.sources.find_samples`. Files that cannot be used are left out of
            the result and of the table, which name samples by ids.
        out: table to write, in .csv; none if ``None``.
        sort_into: folder to make, with the images in one folder per cluster; or the folder of an earlier call
            with this run or a review of the run, see :func:`ucds.target.predictions.sort_into_folders`.
        sort_how: ``"copy"`` or ``"link"``: the images in that folder are copies or symbolic links.
        about: table about the samples, for a run that was centred by one of its columns; see
            :func:`ucds.training.centring.as_trained`.
        min_confidence: confidence, 0 to 1, below which a sample gets
            :data:`ucds.target.predictions.UNSORTED` in place of a cluster, and its image goes into the folder
            :data:`ucds.target.predictions.UNSORTED_FOLDER`.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run or the samples cannot be used, ``sort_into`` is in use or lies inside ``images``,
            ``out`` cannot be written, or ``min_confidence`` is no probability.
        DamagedFileError: the model file or the file of names cannot be read.
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"`min_confidence` is a probability from 0 to 1, not {min_confidence}")
    if sort_into is None and sort_how != "copy":
        raise InputError("`sort_how` is for `sort_into`, which is not given: leave it out")
    run, folder = Path(run), None if sort_into is None else Path(sort_into)
    sorted_before = None
    if out is not None:
        require_writable(Path(out), ".csv", inputs=files_read(run, images))
    if folder is not None:
        sorted_before = read_sorting(folder)
        if (place := place_of(images)) is not None:
            refuse_inside(folder, place)
    require_model(run)
    if about is not None and not (run / CENTRES_FILE).exists():
        raise InputError("`about` is for a run that was centred by one of its columns: leave it out")
    require_there(images)
    if folder is not None:
        listed = find_samples(images, by_domain=False)
        if not isinstance(listed, Scan):
            raise InputError("`sort_into` needs image files, not embeddings or images in memory")
        images = listed
        if sort_how == "copy":
            require_room(folder, listed)
    from ucds.training.loaded import load

    model = load(run, role="target", compute=compute)
    names = read_names(run, model.stored)
    if sorted_before is not None and folder is not None:
        sorted_before.require_of(folder, run, model.stored.fingerprint)
    data = model.open(images)
    seen = data
    if (run / CENTRES_FILE).exists():
        from ucds.training.centring import as_trained  # it brings what clusters, which takes a while

        seen = as_trained(run, model, data, about)
    clusters, confidence = model.decide(seen)
    source, unused, fits, others = None, set[int](), None, list[tuple[int, bytes]]()
    if _asks_memory(run, data.samples.keys):
        from ucds.target.remembered import read_remembered  # it brings what clusters, which takes a while

        remembered, features = read_remembered(run)
        fits = remembered.fits(model, seen, features)
        source = remembered.correct(data.samples.keys, clusters, confidence)
        if source is not None:
            unused = set(range(model.n_clusters)) - set(remembered.own.tolist())
            if sorted_before is not None:
                recorded = set(sorted_before.pictures.values()) - {key.hex() for key in data.samples.keys}
                others = _sorted_earlier(model, remembered, features, recorded, min_confidence)
    clusters[confidence < min_confidence] = UNSORTED
    ids, files = data.samples.ids, data.samples.files
    found = Predictions(ids, clusters, confidence, names, model.n_clusters, files, source, unused, fits)
    if out is not None:
        found.save(out)
    if folder is not None:
        mark = model.stored.fingerprint
        sort_into_folders(folder, found, data.samples.keys, sort_how, mark, others=others)
    return found


def _sorted_earlier(
    model: Model, remembered: Remembered, features: FloatArray, recorded: Set[str], min_confidence: float
) -> list[tuple[int, bytes]]:
    """Return clusters and keys of the remembered images that an earlier sorting has recorded."""
    rows = np.flatnonzero([key.hex() in recorded for key in remembered.keys])
    shares, keys = model.stored.head.probabilities(features[rows]), keys_of(remembered.keys).take(rows)
    clusters, confidence = shares.argmax(1), shares.max(1)
    remembered.correct(keys, clusters, confidence)
    clusters[confidence < min_confidence] = UNSORTED
    return list(zip(clusters.tolist(), keys, strict=True))


def _asks_memory(run: Path, keys: Sequence[bytes]) -> bool:
    """Return whether the run was reviewed, or does not know all these keys."""
    if not (run / VOTES_FILE).exists():
        return False
    kept = read_arrays(run / VOTES_FILE, ("by_person", "keys"))
    known = kept.get("keys")
    if known is None or known.dtype != np.uint8 or known.shape[1:] != (KEY_BYTES,):
        return True  # what reads all of it says that it is damaged
    return "by_person" in kept or not np.isin(keys_of(keys).array, known.view(KEY_TYPE).ravel()).all()
