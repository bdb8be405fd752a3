"""The client's part of the consensus method: a vote of clusterings in several spaces and the labels.

The numbers of the steps are those of ``docs/consensus.md``.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import IntArray
from ucds.files import write_text_atomically
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.partitions import Partition, consensus, kmeans_partitions, vote_shares
from ucds.math.spaces import (
    FloatArray,
    centre,
    make_spaces,
    mutual_neighbours,
    neighbours_within,
    principal_axes,
    principal_space,
    unit_rows,
)
from ucds.target.guard import Evidence, weigh_labels
from ucds.training.fitting import FeatureClusters, fit_assignments, start_from_clusters
from ucds.training.prepare import TrainedModel, conclude
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

STAGE = "agree"
TRANSFER_FILE = "transfer.json"


@dataclass(frozen=True)
class Agreed:
    """The result of the vote.

    Attributes:
        partition: ``(n,)`` cluster of each sample.
        shares: ``(n, K)`` share of the votes for each cluster, rows sum to 1. The partition itself has half
            of all votes.
        evidence: use of the provider's labels, and its reasons; ``None`` without labels.
    """

    partition: Partition
    shares: FloatArray
    evidence: Evidence | None


def agree(
    vectors: FloatArray,
    n_clusters: int,
    settings: ConsensusSettings,
    rng: np.random.Generator,
    *,
    labels: Partition | None = None,
    rows: IntArray | None = None,
) -> Agreed:
    """Cluster samples by a vote of k-means partitions in several spaces and, if the guard agrees, of labels.

    Args:
        vectors: features ``(n, d)`` of one domain.
        n_clusters: number of clusters, K.
        settings: settings of the method.
        rng: generator of the random draws of k-means and of the vote.
        labels: ``(m,)`` provider's labels, of any number of clusters; ``None`` if there are none.
        rows: ``(m,)`` positions of the labelled samples; all samples, in order, if ``None``.
    """
    # Step 1: spaces in which the samples fall into clusters.
    spaces = make_spaces(
        vectors,
        n_clusters,
        names=settings.spaces,
        width=settings.space_width,
        whitening=settings.whitening,
        neighbours=settings.neighbours,
        rounds=settings.diffusion_rounds,
    )
    # Step 2: partitions in each space vote, and the consensus is the partition that agrees best with them.
    starts = settings.space_partitions
    own = [kmeans_partitions([space], n_clusters, starts, rng) for space in spaces.values()]
    votes = [partition for space in own for partition in space]
    partition, evidence = consensus(votes, n_clusters, rng), None
    if labels is not None:
        # Step 3: the guard decides how to use the provider's labels.
        rows = np.arange(len(vectors)) if rows is None else rows
        evidence = weigh_labels(own, partition, labels, rows, settings)
        principal = spaces.get("principal")
        if principal is None:
            principal = principal_space(centre(vectors), settings.space_width, settings.whitening)
        everywhere = _complete(principal, labels, rows)
        if evidence.use == "consensus":
            # Step 4 a: the labels have the votes of one more space.
            votes += [everywhere] * starts
        elif evidence.use == "transferred":
            # Step 4 b: the labels, averaged over mutual neighbours, are further coordinates of every space.
            count = neighbours_within(len(vectors), n_clusters, settings.neighbours)
            smooth = mutual_neighbours(principal, count) @ np.eye(int(labels.max()) + 1)[everywhere]
            widened = (np.hstack([space, unit_rows(smooth)]) for space in spaces.values())
            votes += kmeans_partitions(widened, n_clusters, starts, rng)
        if evidence.use != "own":
            partition = consensus(votes, n_clusters, rng)
    # Step 5: the model will be fitted to shares of votes. The consensus has half of them: votes against it
    # then lower the certainty about a sample, but do not outweigh it.
    shares = vote_shares(votes + [partition] * len(votes), partition, n_clusters)
    return Agreed(partition, shares, evidence)


def fit_target_by_consensus(
    session: Session[ConsensusSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
    cache: Path | None,
) -> TrainedModel:
    """Cluster the frozen features of the target, and fit a model to the shares of the votes.

    The folder of the run, if there is one, gets ``transfer.json``: the use of the labels and its reasons.
    Arguments and errors are those of :func:`ucds.target.fit.fit_target`.
    """
    training, shares = start_from_clusters(
        session,
        STAGE,
        backbone,
        data,
        n_clusters,
        lambda vectors: _cluster(session, vectors, data, n_clusters, labels),
        cache,
    )
    fit_assignments(session, "fit-target", training.trained, training.data, shares)
    return conclude(session, training, data)


def _cluster(
    session: Session[ConsensusSettings],
    vectors: FloatArray,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
) -> FeatureClusters:
    started, rng = time.monotonic(), numpy_generator(session.runtime.seed, STAGE)
    hard, rows = None, None
    if labels is not None:
        hard, rows = labels.labels, labels.rows_in(data.samples.ids)
    agreed = agree(vectors, n_clusters, session.settings, rng, labels=hard, rows=rows)
    _report(session, agreed.evidence)
    mean = unit_rows(vectors).mean(0)
    axes, _ = principal_axes(centre(vectors), session.settings.bottleneck_width)
    projected = unit_rows((unit_rows(vectors) - mean) @ axes)
    return FeatureClusters(
        axes,
        mean,
        unit_rows(agreed.shares.T @ projected).T,
        agreed.shares.mean(0, keepdims=True),
        agreed.shares,
        time.monotonic() - started,
    )


def _report(session: Session[ConsensusSettings], evidence: Evidence | None) -> None:
    runtime = session.runtime
    if evidence is None or runtime.rank != 0:
        return
    runtime.reporter.say(evidence.sentence)
    if runtime.folder is not None:
        text = json.dumps(evidence.to_dict(), indent=2) + "\n"
        write_text_atomically(runtime.folder.path / TRANSFER_FILE, text)


def _complete(space: FloatArray, labels: Partition, rows: IntArray) -> Partition:
    """Return a label for every sample: its own, or that of the nearest sample that has one."""
    everywhere = np.full(len(space), -1)
    everywhere[rows] = labels
    missing = np.flatnonzero(everywhere < 0)
    if len(missing):
        search = NearestNeighbors(n_neighbors=1).fit(space[rows])
        everywhere[missing] = labels[search.kneighbors(space[missing], return_distance=False)[:, 0]]
    return everywhere
