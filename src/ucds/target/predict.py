"""Finds the clusters of samples with the client's own model."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.choices import Accelerator
from ucds.data.images import ImageSamples
from ucds.errors import InputError
from ucds.files import refuse_inside, require_writable, write_text_atomically
from ucds.target.names import ClusterNames
from ucds.training.inputs import CacheOptions, is_vector_file
from ucds.training.loaded import load
from ucds.training.progress import Reporter

UNSORTED = -1
"""Number in place of a cluster, for a sample whose confidence is below the least one asked for."""

UNSORTED_FOLDER = "unsorted"
"""Folder of these samples' images, beside those of the clusters."""


@dataclass(frozen=True)
class Predictions:
    """Clusters of samples.

    Attributes:
        ids: id of each sample.
        clusters: ``(n,)`` most probable cluster of each sample; :data:`UNSORTED` where its confidence is
            below the least one asked for.
        confidence: ``(n,)`` probability of the most probable cluster, see ``docs/confidence.md``.
        names: name of each named cluster by its number.
    """

    ids: tuple[str, ...]
    clusters: NDArray[np.int64]
    confidence: NDArray[np.float32]
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def unsorted(self) -> int:
        """Number of samples that are left without a cluster."""
        return int((self.clusters == UNSORTED).sum())

    def save(self, path: str | Path) -> None:
        """Write ``sample,cluster,confidence`` lines with a header; with names, they are a fourth column.

        A text that a spreadsheet would take for a formula gets an apostrophe in front.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        named = ["name"] if self.names else []
        writer.writerow(["sample", "cluster", "confidence", *named])
        for name, cluster, confidence in zip(self.ids, self.clusters, self.confidence, strict=True):
            row = [_harmless(name), int(cluster), f"{confidence:.4f}"]
            writer.writerow(row + [_harmless(self.names.get(int(cluster), "")) for _ in named])
        write_text_atomically(Path(path), text.getvalue())


def predict(
    run: str | Path,
    images: str | Path,
    out: str | Path | None = None,
    *,
    sort_into: str | Path | None = None,
    names: str | Path | None = None,
    min_confidence: float = 0.0,
    accelerator: Accelerator = "auto",
    cache: CacheOptions | None = None,
    reporter: Reporter | None = None,
) -> Predictions:
    """Find the cluster of each sample with the client's own model; ``ucds predict`` does the same.

    Args:
        run: folder of a finished target run.
        images: folder of images at any depth, or ``.npy`` or ``.npz`` file of embeddings.
        out: CSV file to write; none if ``None``.
        sort_into: folder to make, with copies of the images in one folder a cluster; none if ``None``.
        names: file of names of the clusters, saved from the run's report; none if ``None``.
        min_confidence: confidence, 0 to 1, below which a sample gets :data:`UNSORTED` in place of a cluster,
            and its image is copied into the folder :data:`UNSORTED_FOLDER`.
        accelerator: device to compute on.
        cache: place of decoded images and frozen features.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: the run, the samples or the names cannot be used, ``sort_into`` is in use or lies inside
            ``images``, ``out`` cannot be written, or ``min_confidence`` is no probability.
        DamagedFileError: the model file or the file of names cannot be read.
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"--min-confidence is a probability from 0 to 1, not {min_confidence}")
    images, folder = Path(images), None if sort_into is None else Path(sort_into)
    if folder is not None:
        if is_vector_file(images):
            raise InputError("--sort-into needs images, not embeddings")
        check_unused(folder)
        refuse_inside(folder, images)
    if out is not None:
        require_writable(Path(out))
    model = load(run, role="target", accelerator=accelerator, cache=cache, reporter=reporter)
    known = {} if names is None else ClusterNames.load(names).of(model.stored)
    data = model.open(images)
    probabilities = model.probabilities(data)
    clusters, confidence = probabilities.argmax(1), probabilities.max(1)
    clusters[confidence < min_confidence] = UNSORTED
    found = Predictions(data.samples.ids, clusters, confidence, known)
    if folder is not None:
        assert isinstance(data.samples, ImageSamples)
        sort_into_folders(folder, images, data.samples.paths, found, model.n_clusters)
    if out is not None:
        found.save(out)
    return found


def _harmless(name: str) -> str:
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def check_unused(folder: Path) -> None:
    """Make sure that images can be sorted into a folder.

    Raises:
        InputError: the folder is not empty, is the current one, or is not a folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: choose another --sort-into")
    if folder.resolve() == Path.cwd():
        raise InputError("the current folder cannot be sorted into: name a new one")


def sort_into_folders(
    folder: Path, images: Path, paths: Sequence[str], predictions: Predictions, n_clusters: int
) -> None:
    """Copy images into one folder a cluster, under names that differ.

    The folder of a named cluster has this name; clusters of one name share a folder. Images without a
    cluster have a folder of their own. A file in a sub-folder, ``a/b.jpg``, is copied as ``a__b.jpg``.
    Everything is copied to a temporary folder first, so that a crash leaves no half-sorted result.

    Args:
        folder: folder to make; it must not exist, or be empty.
        images: folder of the images.
        paths: paths of the images below ``images``, in the order of the predictions. Ids cannot stand for
            them: the id of a file whose name is not UTF-8 does not open the file.
        predictions: clusters of these images.
        n_clusters: number of clusters, K.

    Raises:
        InputError: ``folder`` is in use.
    """
    check_unused(folder)
    places = {cluster: _folder_name(cluster, n_clusters, predictions.names) for cluster in range(n_clusters)}
    if predictions.unsorted:
        places[UNSORTED] = UNSORTED_FOLDER + "_" * (UNSORTED_FOLDER in places.values())
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for place in places.values():
        (partial / place).mkdir(parents=True, exist_ok=True)
    for path, cluster in zip(paths, predictions.clusters, strict=True):
        destination = _unused(partial / places[int(cluster)] / path.replace("/", "__"))
        shutil.copyfile(images / path, destination)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)


def _folder_name(cluster: int, n_clusters: int, names: Mapping[int, str]) -> str:
    """Return the name of a cluster without what a file system or a shell may take for something else."""
    usable = re.sub(r"[^\w ().,+-]", "_", names.get(cluster, "")).strip(" .")
    return usable or f"cluster_{cluster:0{len(str(n_clusters - 1))}d}"


def _unused(path: Path) -> Path:
    """Add a number to a path that is taken (by `a__b.jpg`, when `a/b.jpg` is copied)."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem} ({number})")
    return free
