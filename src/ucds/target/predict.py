"""The target owner sorts samples with a model of its own."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucds.errors import UserError
from ucds.files import write_text_atomically
from ucds.training.model_file import StoredModel
from ucds.training.prediction import predict
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
    stored: StoredModel, data: TrainingData, runtime: Runtime, *, batch_size: int = 256
) -> Predictions:
    """Find each sample's most probable cluster."""
    model = stored.model.to(runtime.device)
    confidence, clusters = predict(model, data.samples, data.view, runtime, batch_size).max(-1)
    return Predictions(data.samples.ids, clusters.cpu().numpy(), confidence.cpu().numpy())


def sort_into_folders(folder: Path, images: Path, predictions: Predictions, n_clusters: int) -> None:
    """Copy images into one folder a cluster, under names that stay apart.

    A file in a sub-folder, ``a/b.jpg``, is copied as ``a__b.jpg``. Everything is copied to a temporary
    folder first, so that a crash leaves no half-sorted result.

    Args:
        folder: to be made; it must not exist, or be empty.
        images: the folder that the sample ids are relative to.
        predictions: of these images.
        n_clusters: how many folders.

    Raises:
        UserError: ``folder`` is in use.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not an empty folder: choose another --sort-into")
    width = len(str(n_clusters - 1))
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for cluster in range(n_clusters):
        (partial / f"cluster_{cluster:0{width}d}").mkdir(parents=True)
    for name, cluster in zip(predictions.ids, predictions.clusters, strict=True):
        destination = partial / f"cluster_{cluster:0{width}d}" / _flat(name)
        shutil.copyfile(images / name, destination)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)


def _flat(name: str) -> str:
    # Doubling what is there keeps `a__b.jpg` and `a/b.jpg` apart.
    return name.replace("__", "____").replace("/", "__")
