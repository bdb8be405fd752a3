"""The target's part of the recipe ``ucds``: agree on clusters, then fit a model to them (docs/recipe.md)."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path

import numpy as np

from ucds.backbones import Backbone
from ucds.files import write_text_atomically
from ucds.labels.cluster_labels import ClusterLabels
from ucds.models import ClusteringModel
from ucds.spaces import FloatArray, centre, principal_axes, unit_rows
from ucds.target.consensus import Agreed, agree
from ucds.training.fitting import Found, fit_assignments, read_features, refuse_unfit, start_model
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData

STAGE = "agree"
TRANSFER_FILE = "transfer.json"


def train_target_by_consensus(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    n_clusters: int,
    labels: ClusterLabels | None,
    *,
    cache: Path | None = None,
) -> ClusteringModel:
    """Cluster the frozen features of the target, with a provider's labels as far as they deserve it.

    The model is then fitted to the shares of the votes: its new layers, or with ``tune = "full"`` all of it.

    Args:
        session: the run; afterwards it holds the results of the stages. Its folder, if any, gets
            ``transfer.json``: what became of the labels, and why.
        backbone: pre-trained encoder, of any architecture.
        data: target samples and views.
        n_clusters: the paper's ``K``; the provider's may be another.
        labels: the provider's answers for some or all of the samples; ``None`` clusters them alone.
        cache: folder for frozen features.

    Returns:
        The whole model, in evaluation mode.

    Raises:
        UserError: there are fewer samples than clusters, or no sample has a label.
    """
    refuse_unfit(session, data.samples, n_clusters)
    training = prepare(session, backbone, data, n_clusters, side="target", cache=cache, unit_features=True)
    if session.result_of(STAGE) is None:
        vectors = read_features(session, backbone, training, data, cache)
        found, agreed = session.runtime.fabric.broadcast(_cluster(session, vectors, data, n_clusters, labels))
        _tell(session, agreed)
        start_model(session, STAGE, training, found, vectors)
    targets = session.results[0].state["assignments"]
    fit_assignments(session, "fit-target", training.trained, training.data, targets)
    session.save_evaluations(data.samples)
    return training.model.eval()


def _cluster(
    session: Session, vectors: FloatArray, data: TrainingData, n_clusters: int, labels: ClusterLabels | None
) -> tuple[Found, Agreed]:
    started, ids = time.monotonic(), data.samples.ids
    rng = np.random.default_rng([session.runtime.seed, zlib.crc32(STAGE.encode())])
    given: dict[str, np.ndarray] = {}
    if labels is not None:
        given = {"labels": labels.labels, "rows": labels.check_matches(ids, labels.n_clusters)}
    agreed = agree(vectors, n_clusters, session.config, rng, **given)
    mean = unit_rows(vectors).mean(0)
    axes, _ = principal_axes(centre(vectors), session.config.bottleneck_width)
    projected = unit_rows((unit_rows(vectors) - mean) @ axes)
    prototypes = unit_rows(agreed.shares.T @ projected).T
    found = Found(
        axes,
        mean,
        prototypes,
        agreed.shares.mean(0, keepdims=True),
        agreed.shares,
        time.monotonic() - started,
    )
    return found, agreed


def _tell(session: Session, agreed: Agreed) -> None:
    runtime = session.runtime
    if agreed.evidence is None or runtime.rank != 0:
        return
    runtime.reporter.say(agreed.evidence.sentence)
    if runtime.folder is not None:
        text = json.dumps(agreed.evidence.to_dict(), indent=2) + "\n"
        write_text_atomically(runtime.folder.path / TRANSFER_FILE, text)
