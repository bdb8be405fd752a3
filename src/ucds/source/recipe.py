"""The source's part of the recipe ``ucds``: whole-domain transport in place of training (docs/recipe.md)."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import numpy as np

from ucds.backbones import Backbone
from ucds.domain_transport import cluster_domains
from ucds.models import ClusteringModel
from ucds.spaces import FloatArray
from ucds.training.fitting import Found, fit_assignments, read_features, refuse_unfit, start_model
from ucds.training.prepare import prepare
from ucds.training.session import Session
from ucds.training.stage import TrainingData

STAGE = "cluster-domains"


def train_source_by_transport(
    session: Session, backbone: Backbone, data: TrainingData, n_clusters: int, *, cache: Path | None = None
) -> ClusteringModel:
    """Cluster the frozen features of all source domains; the model then answers for any sample, alone.

    A sample is seen from the mean of the domains' means: the domain of a single query is not known, and
    taking the mean of a batch of queries instead would let an answer depend on what else was asked. (It
    would gain half a point on Office-31.)

    With ``tune = "full"`` the whole encoder is then trained to give the assignments found.

    Args:
        session: the run; afterwards it holds the results of the stages.
        backbone: pre-trained encoder.
        data: source samples and views.
        n_clusters: the paper's ``K``.
        cache: folder for frozen features.

    Returns:
        The whole model, in evaluation mode.

    Raises:
        UserError: there are fewer samples than clusters.
    """
    refuse_unfit(session, data.samples, n_clusters)
    training = prepare(session, backbone, data, n_clusters, side="source", cache=cache, unit_features=True)
    if session.result_of(STAGE) is None:
        vectors = read_features(session, backbone, training, data, cache)
        found = session.runtime.fabric.broadcast(_cluster(session, vectors, data, n_clusters))
        start_model(session, STAGE, training, found, vectors)
    else:
        session.restore(training.trained)
    if session.config.tune == "full":
        targets = session.results[0].state["assignments"]
        fit_assignments(session, "fit-domains", training.trained, training.data, targets)
    session.save_evaluations(data.samples)
    return training.model.eval()


def _cluster(session: Session, vectors: FloatArray, data: TrainingData, n_clusters: int) -> Found:
    config, domain, started = session.config, data.samples.domain, time.monotonic()
    clusters = cluster_domains(
        [vectors[domain == d] for d in range(len(data.samples.domain_names))],
        n_clusters,
        np.random.default_rng([session.runtime.seed, zlib.crc32(STAGE.encode())]),
        width=config.bottleneck_width,
        relaxation=config.proportion_relaxation,
        starts=config.source_starts,
        centred=config.domain_centring,
        transported=config.domain_transport,
    )
    # Plans come domain by domain, samples in any order.
    assignments = np.empty_like(clusters.assignments)
    assignments[np.argsort(domain, kind="stable")] = clusters.assignments
    return Found(
        clusters.axes,
        clusters.mean,
        clusters.prototypes,
        clusters.proportions,
        assignments,
        time.monotonic() - started,
    )
