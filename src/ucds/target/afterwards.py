"""Makes the clusterings that a review needs, of a run that has none as its encoder was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.files import parse_json
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.consensus import cluster_by_vote
from ucds.math.spaces import make_spaces
from ucds.target.consensus import average_labels
from ucds.target.guard import KnownLabels
from ucds.target.remembered import Remembered, write_features, write_remembered
from ucds.training.loaded import load
from ucds.training.options import Compute
from ucds.training.run_folder import LABELS_FILE
from ucds.training.seeds import numpy_generator


def vote_afterwards(run: Path, images: Source | None = None, compute: Compute | None = None) -> None:
    """Cluster the features of a run's samples, and write down what a review of its clusters starts from."""
    model = load(run, role="target", compute=compute)
    place = images or parse_json((run / "run.json").read_bytes()).get("images")
    if place is None:
        raise InputError(f"{run} does not say where its samples lie: name their folder with --images")
    data = model.open(place)
    found = model.outputs(data)
    spaces = make_spaces(found.features, model.n_clusters)
    vote = cluster_by_vote(spaces, model.n_clusters, numpy_generator(0, "review"))
    averaged = None
    if (run / LABELS_FILE).exists():
        labels = ClusterLabels.load(run / LABELS_FILE).align(data.samples.ids, data.samples.keys)
        known = KnownLabels(labels.labels, labels.rows_in(data.samples.ids), labels.n_clusters)
        averaged = average_labels(spaces, known).toarray()
    partitions = np.array([one for space in vote.by_space for one in space])
    own = found.probabilities.argmax(1).astype(np.int64)
    write_features(run, found.features)
    ids = tuple(data.samples.ids)
    write_remembered(run, Remembered(ids, partitions, own, model.n_clusters, averaged))
