"""Labels a client's samples offline: one integer per sample, and nothing else."""

from __future__ import annotations

from pathlib import Path

from ucds.arguments import checked
from ucds.data.dataset import Dataset
from ucds.data.sources import Source, require_there
from ucds.files import require_writable
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.training.loaded import Model, load
from ucds.training.options import Compute
from ucds.training.run_folder import files_read, require_model


@checked
def label(
    run: str | Path, images: Source, out: str | Path | None = None, *, compute: Compute | None = None
) -> ClusterLabels:
    """Label a client's samples with a source model; ``ucds label`` does the same.

    The samples are taken as one domain. A model of the method ``consensus`` centres them on their own mean,
    if there are at least :data:`ucds.training.loaded.FEWEST_TO_CENTRE` of them.

    Args:
        run: folder of a finished source run; the labels carry its name.
        images: samples, see :func:`ucds.data.sources.find_samples`.
        out: label file to write; none if ``None``.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the run or the samples cannot be used, or ``out`` cannot be written.
        DamagedFileError: the model file cannot be read.
    """
    if out is not None:
        require_writable(Path(out), ".json", inputs=files_read(Path(run), images))
    require_model(Path(run))
    require_there(images)
    model = load(run, role="source", compute=compute)
    labels = label_opened(model, model.open(images), model.stored.card.name)
    if out is not None:
        labels.save(out)
    return labels


def label_opened(model: Model, data: Dataset, provider: str) -> ClusterLabels:
    """Label samples that a model has opened, seen as one domain; the provider's name signs the labels."""
    card, found = model.stored.card, model.decide(data, recentred=True)[0]
    ids, marks = data.samples.ids, marks_of(data.samples.keys)
    return ClusterLabels(ids, found, card.n_clusters, provider, marks, card.encoder.columns)
