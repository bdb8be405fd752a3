"""The target owner sorts samples with a model of its own."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.errors import UserError
from ucds.files import write_text_atomically
from ucds.training.inference import cluster_probabilities
from ucds.training.model_file import StoredModel
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData


@dataclass(frozen=True)
class Predictions:
    """Clusters of samples.

    Attributes:
        ids: of the samples.
        clusters: ``(n,)`` most probable cluster.
        confidence: ``(n,)`` its probability.
    """

    ids: tuple[str, ...]
    clusters: NDArray[np.int64]
    confidence: NDArray[np.float32]

    def save(self, path: Path) -> None:
        """Write ``sample,cluster,confidence`` lines with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["sample", "cluster", "confidence"])
        for name, cluster, confidence in zip(self.ids, self.clusters, self.confidence, strict=True):
            writer.writerow([name, int(cluster), f"{confidence:.4f}"])
        write_text_atomically(path, text.getvalue())


def predict_clusters(
    stored: StoredModel, data: TrainingData, runtime: Runtime, *, cache: Path | None = None
) -> Predictions:
    """Find each sample's most probable cluster."""
    confidence, clusters = cluster_probabilities(stored, data, runtime, cache=cache).max(-1)
    return Predictions(data.samples.ids, clusters.cpu().numpy(), confidence.cpu().numpy())


def refuse_used_folder(folder: Path) -> None:
    """Make sure, before any work, that images can be sorted into a folder.

    Raises:
        UserError: it holds something, or is none.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: choose another --sort-into")
    if folder.resolve() == Path.cwd():
        raise UserError("the current folder cannot be sorted into: name a new one")


def sort_into_folders(
    folder: Path, images: Path, paths: Sequence[str], predictions: Predictions, n_clusters: int
) -> None:
    """Copy images into one folder a cluster, under names that stay apart.

    A file in a sub-folder, ``a/b.jpg``, is copied as ``a__b.jpg``. Everything is copied to a temporary
    folder first, so that a crash leaves no half-sorted result.

    Args:
        folder: to be made; it must not exist, or be empty.
        images: the folder of the images.
        paths: of the images below it, in the order of the predictions. (Ids would not do: they stand for
            names that are not text in UTF-8, but do not open them.)
        predictions: of these images.
        n_clusters: how many folders.

    Raises:
        UserError: ``folder`` is in use.
    """
    refuse_used_folder(folder)
    width = len(str(n_clusters - 1))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for cluster in range(n_clusters):
        (partial / f"cluster_{cluster:0{width}d}").mkdir(parents=True)
    for path, cluster in zip(paths, predictions.clusters, strict=True):
        destination = _unused(partial / f"cluster_{cluster:0{width}d}" / path.replace("/", "__"))
        shutil.copyfile(images / path, destination)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)


def _unused(path: Path) -> Path:
    """The path, or if it is taken (by `a__b.jpg`, when `a/b.jpg` comes) the same with a number."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem} ({number})")
    return free
