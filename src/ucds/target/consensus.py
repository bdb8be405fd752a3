"""The client's part of the consensus method: a vote of clusterings in several spaces and the labels.

The numbers of the steps are those of ``docs/consensus.md``.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.errors import UcdsWarning
from ucds.files import write_text_atomically
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.constraints import Constraints, carry_shares, constrain, unmet
from ucds.math.partitions import Memberships, Partition, blend, consensus, share_unmatched
from ucds.math.spaces import Spaces, centre, make_spaces, principal_axes, principal_space, unit_rows
from ucds.math.vote import Stability, agreement_of_spaces, resample, vote
from ucds.math.watch import Watch, unwatched
from ucds.target.guard import Evidence, weigh_labels
from ucds.training.fitting import (
    FeatureClusters,
    draw_dataset,
    fit_assignments,
    start_from_clusters,
    tell_what_drawing_costs,
)
from ucds.training.prepare import TrainedModel, conclude
from ucds.training.run_folder import STABILITY_FILE, TRANSFER_FILE
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

STAGE = "agree"

DOUBTFUL = 0.7
"""Agreement of resampled consensuses below which the client is told to doubt the clusters."""

GROUPLESS = 0.3
"""Agreement of the spaces below which the client is told so too. Noise without groups reaches about 0.15;
the least of the photographs and digits tried was 0.41 (100 paintings in 7 classes)."""

SETTLED = 0.7
"""Agreement of the spaces below which the client is told that the confidence is too high. The three of the
eleven domains in ``docs/confidence.md`` that are below have a confidence that is 3 to 22 points too high on
average; that of the others is at most 2.4 points too high."""


@dataclass(frozen=True)
class Agreed:
    """The result of the vote.

    Attributes:
        partition: ``(n,)`` cluster of each sample.
        stability: dependence of the partition on chance; its shares are what a model is fitted to.
        own_agreement: adjusted mutual information of the target's clusterings in different spaces.
        evidence: use of the provider's labels, and its reasons; ``None`` without labels.
    """

    partition: Partition
    stability: Stability
    own_agreement: float
    evidence: Evidence | None

    @property
    def doubtful(self) -> bool:
        """Whether the clusters depend on chance, or on the space in which the samples are represented."""
        return self.stability.agreement < DOUBTFUL or self.own_agreement < GROUPLESS

    @property
    def overconfident(self) -> bool:
        """Whether the model's confidence is probably higher than the share of samples that are right."""
        return self.own_agreement < SETTLED


def agree(
    vectors: FloatArray,
    n_clusters: int,
    settings: ConsensusSettings,
    rng: np.random.Generator,
    *,
    labels: Partition | None = None,
    rows: IntArray | None = None,
    provider_clusters: int | None = None,
    watch: Watch = unwatched,
) -> Agreed:
    """Cluster samples by a vote of k-means partitions in several spaces and, if the guard agrees, of labels.

    Args:
        vectors: features ``(n, d)`` of one domain.
        n_clusters: number of clusters, K.
        settings: settings of the method.
        rng: generator of the random draws of k-means and of the vote.
        labels: ``(m,)`` provider's labels, of any number of clusters; ``None`` if there are none.
        rows: ``(m,)`` positions of the labelled samples; all samples, in order, if ``None``.
        provider_clusters: number of clusters of the provider, whether or not all of them occur.
        watch: told after each part of the work.

    Raises:
        ValueError: there are labels, but no number of the provider's clusters.
    """
    if labels is not None and provider_clusters is None:
        raise ValueError("labels need the number of the provider's clusters")
    # Step 1: spaces in which the samples fall into clusters.
    spaces = make_spaces(
        vectors,
        n_clusters,
        names=settings.spaces,
        width=settings.space_width,
        whitening=settings.whitening,
        neighbours=settings.neighbours,
        rounds=settings.diffusion_rounds,
        watch=watch,
    )
    # Step 2: partitions in each space vote, and the consensus is the partition that agrees best with them.
    own = vote(spaces, n_clusters, rng, starts=settings.starts, watch=watch)
    partition, others, evidence = own.partition, None, None
    if labels is not None and provider_clusters is not None:
        # Step 3: the guard decides how much the provider's labels count.
        rows = np.arange(len(vectors)) if rows is None else rows
        evidence = weigh_labels(
            own,
            spaces.graph,
            labels,
            rows,
            n_clusters=n_clusters,
            provider_clusters=provider_clusters,
            transfer=settings.transfer,
        )
        if evidence.weight > 0:
            # Step 4: the labels vote, averaged over neighbours and with their weight.
            others = average_labels(vectors, spaces, labels, rows, settings)
            partition = consensus(blend(own.memberships, others, evidence.weight), n_clusters, rng)
            evidence = replace(evidence, regrouped=share_unmatched(own.partition, partition))
    # Step 5: the vote is repeated in parts, which tells how sure the cluster of each sample is.
    weight = 0.0 if evidence is None else evidence.weight
    votes = [one for space in own.spaces for one in space]
    stability = resample(votes, others, weight, partition, n_clusters, rng, watch=watch)
    return Agreed(partition, stability, agreement_of_spaces(own.spaces), evidence)


def average_labels(
    vectors: FloatArray, spaces: Spaces, labels: Partition, rows: IntArray, settings: ConsensusSettings
) -> Memberships:
    """Average labels over mutual neighbours: ``(n, K')`` memberships.

    Args:
        vectors: ``(n, d)`` features of one domain.
        spaces: spaces made of these.
        labels: ``(m,)`` provider's labels.
        rows: ``(m,)`` positions of the labelled samples; any other sample first gets the label of the
            nearest labelled one.
        settings: settings of the method.
    """
    everywhere = labels
    if len(rows) < len(vectors):
        principal = principal_space(centre(vectors), settings.space_width, settings.whitening)
        everywhere = _complete(principal, labels, rows)
    return sparse.csr_array(unit_rows(spaces.graph @ np.eye(int(labels.max()) + 1)[everywhere]))


def fit_target_by_consensus(
    session: Session[ConsensusSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
    cache: Path | None,
    corrections: Constraints | None = None,
) -> TrainedModel:
    """Cluster the frozen features of the target, and fit a model to the shares of the resampled votes.

    The folder of the run, if there is one, gets ``stability.json``, the agreement of the resampled votes,
    and, if there are labels, ``transfer.json``, their use and its reasons.
    Arguments and errors are those of :func:`ucds.target.fit.fit_target`.
    """
    corrections = corrections or Constraints()
    labelled = np.empty(0, np.int64) if labels is None else labels.rows_in(data.samples.ids)
    everything = len(data.samples)
    data, drawn = draw_dataset(session, data, first=(corrections.samples, labelled))
    inside = np.isin(labelled, drawn)
    answers: dict[str, Any] = (
        {}
        if labels is None
        else {
            "labels": labels.labels[inside],
            "rows": np.searchsorted(drawn, labelled[inside]),
            "provider_clusters": labels.n_clusters,
        }
    )
    corrections = corrections.among(drawn)
    training, shares = start_from_clusters(
        session,
        STAGE,
        backbone,
        data,
        n_clusters,
        lambda vectors: _cluster(session, vectors, n_clusters, answers, corrections),
        cache,
    )
    clustered = session.result_of(STAGE)
    single = None if clustered is None else clustered.single
    fit_assignments(session, "fit-target", training.trained, training.data, shares, single)
    if len(drawn) < everything:
        fitted = session.settings.tune == "head"
        tell_what_drawing_costs(session, training, shares, fitted=fitted)
    return conclude(session, training, data)


def _cluster(
    session: Session[ConsensusSettings],
    vectors: FloatArray,
    n_clusters: int,
    answers: Mapping[str, Any],
    corrections: Constraints,
) -> FeatureClusters:
    started, rng = time.monotonic(), numpy_generator(session.runtime.seed, STAGE)
    agreed = agree(vectors, n_clusters, session.settings, rng, **answers, watch=session.runtime.watch)
    _report(session, agreed)
    shares, single = agreed.stability.shares, agreed.stability.single
    if corrections.together or corrections.apart:
        # Step 6: what a person corrected in the report of an earlier run.
        partition = correct(agreed, vectors, corrections)
        shares, single = (carry_shares(each, agreed.partition, partition) for each in (shares, single))
    width, seconds = session.settings.bottleneck_width, time.monotonic() - started
    return replace(describe_clusters(vectors, shares, width, seconds), single=single)


def describe_clusters(vectors: FloatArray, shares: FloatArray, width: int, seconds: float) -> FeatureClusters:
    """Make the axes and prototypes of a model that starts from given clusters.

    Args:
        vectors: ``(n, d)`` features of one domain.
        shares: ``(n, K)`` share of each cluster in each sample, rows sum to 1.
        width: largest number of axes.
        seconds: time that the search for the clusters took.
    """
    mean = unit_rows(vectors).mean(0)
    axes, _ = principal_axes(centre(vectors), width)
    projected = unit_rows((unit_rows(vectors) - mean) @ axes)
    prototypes = unit_rows(shares.T @ projected).T
    return FeatureClusters(axes, mean, prototypes, shares.mean(0, keepdims=True), shares, seconds)


def correct(agreed: Agreed, vectors: FloatArray, corrections: Constraints) -> Partition:
    """Correct the clusters of a vote, as far as the corrections can be met.

    Args:
        agreed: result of the vote.
        vectors: ``(n, d)`` features of the same samples.
        corrections: groups of samples that belong together or apart.

    Returns:
        ``(n,)`` cluster of each sample.

    Warns:
        UcdsWarning: some corrections cannot be met.
    """
    n_clusters = agreed.stability.shares.shape[1]
    partition = constrain(agreed.partition, centre(vectors), corrections, n_clusters)
    count, given = unmet(partition, corrections), len(corrections.together + corrections.apart)
    if count:
        reason = "they contradict others, or need more --clusters"
        message = f"{count} of {given} corrections cannot be met: {reason}"
        warnings.warn(message, UcdsWarning, stacklevel=2)
    return partition


def _report(session: Session[ConsensusSettings], agreed: Agreed) -> None:
    """Say and write down how stable the clusters are, and what became of the provider's labels."""
    runtime, agreement = session.runtime, agreed.stability.agreement
    if runtime.rank != 0:
        return
    found = [f"the vote repeated in parts agrees with the clusters to {agreement:.2f} (1 is full agreement)"]
    if agreed.doubtful:
        found.append(
            "doubt these clusters: they depend on chance, or your samples fall into no clear groups; fewer "
            "clusters or another encoder may be better"
        )
    elif agreed.overconfident:
        found.append(
            f"single clusterings of your samples agree with each other to only {agreed.own_agreement:.2f}: "
            "fewer samples are in the right cluster than the confidence says; look at the clusters first"
        )
    if agreed.evidence is not None:
        found.append(agreed.evidence.sentence)
    for sentence in found:
        runtime.reporter.say(sentence)
    if runtime.folder is None:
        return
    stability = {
        "agreement": agreement,
        "own_agreement": agreed.own_agreement,
        "doubtful": agreed.doubtful,
        "overconfident": agreed.overconfident,
    }
    files: dict[str, dict[str, Any]] = {STABILITY_FILE: stability}
    if agreed.evidence is not None:
        files[TRANSFER_FILE] = agreed.evidence.to_dict()
    for name, values in files.items():
        write_text_atomically(runtime.folder.path / name, json.dumps(values, indent=2) + "\n")


def _complete(space: FloatArray, labels: Partition, rows: IntArray) -> Partition:
    """Return a label for every sample: its own, or that of the nearest sample that has one."""
    everywhere = np.full(len(space), -1)
    everywhere[rows] = labels
    missing = np.flatnonzero(everywhere < 0)
    if len(missing):
        search = NearestNeighbors(n_neighbors=1).fit(space[rows])
        everywhere[missing] = labels[search.kneighbors(space[missing], return_distance=False)[:, 0]]
    return everywhere
