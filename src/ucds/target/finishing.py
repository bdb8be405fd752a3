"""The start of a review whose run remembers no clustering, and the run that a review writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.sources import Source
from ucds.encoders.spec import LENGTHS
from ucds.files import making, write_text_atomically, writing
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray
from ucds.math.consensus import Partition
from ucds.math.corrections import ASIDE
from ucds.math.prototypes import solve_prototypes
from ucds.received import open_received
from ucds.showing import shows
from ucds.target.agreement import agree, draw_with_labels, remember_vote
from ucds.target.known import open_known
from ucds.target.predictions import NAMES_FILE, ClusterNames
from ucds.target.remembered import Remembered, write_features, write_remembered
from ucds.training.loaded import load
from ucds.training.model_file import StoredModel, load_model, save_model
from ucds.training.options import Compute
from ucds.training.run_folder import EARLY_FILES, LABELS_FILE, MAP_FILE, RUN_FILE, read_run
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

_MOST_FITTED = 50_000  # samples that prototypes are fitted to


@shows()
@dataclass(frozen=True)
class ReviewedRun:
    """A run that was written from reviewed clusters.

    Attributes:
        path: run folder.
        answered: number of answers that count.
        n_clusters: number of clusters that have samples.
        agreement: share of the clustered samples that the model puts into their reviewed cluster.
    """

    path: Path
    answered: int
    n_clusters: int
    agreement: float

    @property
    def sentence(self) -> str:
        """Sentence that tells the person what was done."""
        answers = "1 answer" if self.answered == 1 else f"{self.answered} answers"
        return (
            f"{self.path} written: {self.n_clusters} clusters after {answers}; the model gives "
            f"{self.agreement:.1%} of the samples the cluster that they have in the review"
        )


def write_successor(
    run: Path,  # the earlier one, whose other files are copied
    out: Path,
    stored: StoredModel,
    kept: Remembered,
    features: FloatArray,  # (n, d_f) of the samples
    stage: str,  # name of what was done, for the description of the model
    *,
    names: Mapping[int, str],
    described: Mapping[str, Any] | None = None,  # entries that differ from those of the run before
    write_more: Callable[[Path], None] | None = None,  # writes further files into the folder
) -> float:
    """Write a run that follows another one, all of it or nothing.

    Returned is the share of the samples in a cluster that the model gives this cluster.
    """
    before = read_run(run)
    reviewed = [*(before.get("reviewed") or []), load_model(run).fingerprint]  # models whose numbers are kept
    after = {**before, "clusters": kept.n_clusters, "reviewed": reviewed, **(described or {})}
    stages = (*stored.card.stages, stage)
    stored = replace(stored, card=replace(stored.card, name=out.name, stages=stages))
    with making(out) as partial, writing(out):
        partial.chmod(0o700)
        for name in (*EARLY_FILES, MAP_FILE):
            with suppress(FileNotFoundError), open_received(run / name) as file:
                (partial / name).write_bytes(file.read())
        write_text_atomically(partial / RUN_FILE, json.dumps(after, indent=2) + "\n")
        write_features(partial, features)
        write_remembered(partial, kept)
        if write_more is not None:
            write_more(partial)
        save_model(partial, stored)
        if names:
            named = ClusterNames(format="ucds-names/1", model=stored.fingerprint, names=dict(names))
            write_text_atomically(partial / NAMES_FILE, named.model_dump_json(indent=1) + "\n")
    inside = np.flatnonzero(kept.own != ASIDE)
    given = (features[inside] @ stored.head.prototypes).argmax(1)
    return float((given == kept.own[inside]).mean())


def fit(
    stored: StoredModel, start: Remembered, clusters: Partition, n_clusters: int, features: FloatArray
) -> StoredModel:
    """Give a model the prototypes that predict the clusters ``(n,)`` of remembered samples best."""
    inside = np.flatnonzero(clusters != ASIDE)
    rows = inside[np.linspace(0, len(inside) - 1, min(len(inside), _MOST_FITTED)).astype(np.int64)]
    shares = start.shares(clusters, n_clusters, rows)
    prototypes = solve_prototypes(
        features[rows], shares, np.zeros((features.shape[1], n_clusters), np.float32)
    )
    card = replace(stored.card, n_clusters=n_clusters)
    head, proportions = replace(stored.head, prototypes=prototypes), shares.mean(0, keepdims=True)
    return replace(stored, card=card, head=head, proportions=proportions)


def vote_afterwards(run: Path, images: Source | None, compute: Compute | None) -> None:
    """Cluster the features of a run's samples, and write what a review of its clusters needs to start.

    If there are more than ``most_samples``, that many are clustered, as in a training by consensus.
    """
    model, described = load(run, role="target", compute=compute), read_run(run)
    data, labels = open_known(model, described, None, images).data, None
    if (run / LABELS_FILE).exists():
        labels = ClusterLabels.load(run / LABELS_FILE).align_with(data.samples)
    most = (described.get("settings") or {}).get("most_samples")
    bound = {"most_samples": most} if most else {}
    settings = ConsensusSettings(transfer="own", **bound)
    work = Work(settings, model.compute)
    data, known = draw_with_labels(work, data, labels)
    found, rng = model.outputs(data), numpy_generator(0, "review")
    lengths = model.stored.card.encoder.name == LENGTHS
    agreed = agree(found.features, model.n_clusters, settings, rng, known, work.watch, lengths)
    write_features(run, found.features)
    remember_vote(run, data.samples, agreed, found.probabilities.argmax(1))
