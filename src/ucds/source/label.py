"""Labels a client's samples offline: one integer a sample, and nothing else."""

from __future__ import annotations

from pathlib import Path

from ucds.choices import Accelerator
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.inference import cluster_probabilities
from ucds.training.inputs import CacheOptions, open_for_prediction
from ucds.training.model_file import load_model
from ucds.training.progress import Quiet, Reporter
from ucds.training.runtime import Runtime


def label(
    run: str | Path,
    images: str | Path,
    out: str | Path | None = None,
    *,
    accelerator: Accelerator = "auto",
    cache: CacheOptions | None = None,
    reporter: Reporter | None = None,
) -> ClusterLabels:
    """Label a client's samples with a source model; ``ucds label`` does the same.

    Args:
        run: folder of a finished source run; its name signs the labels.
        images: folder of images, or ``.npy`` or ``.npz`` file of embeddings.
        out: label file to write; none if ``None``.
        accelerator: device to compute on.
        cache: place of decoded images and frozen features.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: the run or the samples cannot be used.
        DamagedFileError: the model file cannot be read.
    """
    stored = load_model(Path(run), role="source")
    cache, reporter = cache or CacheOptions(), reporter or Quiet()
    data = open_for_prediction(Path(images), stored.card.backbone, "target", cache, reporter)
    runtime = Runtime(accelerator=accelerator, reporter=reporter)
    probabilities = cluster_probabilities(stored, data, runtime, cache=cache.directory)
    hard = probabilities.argmax(-1).cpu().numpy()
    labels = ClusterLabels(data.samples.ids, hard, stored.card.n_clusters, stored.card.name)
    if out is not None:
        labels.save(out)
    return labels
