"""The client's part of the consensus method: a vote of clusterings in several spaces and the labels.

The numbers of the steps are those of ``docs/consensus.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.files import write_text_atomically
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.arrays import FloatArray, Watch
from ucds.math.consensus import (
    Memberships,
    Opinion,
    Partition,
    Vote,
    average_linkage,
    blend,
    mean_shares,
    refine,
    soften,
)
from ucds.math.domain_transport import FeatureClusters
from ucds.math.second_opinion import cluster_by_opinions
from ucds.math.spaces import Spaces, centre, make_spaces, principal_axes, unit_rows
from ucds.target.guard import Evidence, KnownLabels, weigh_labels
from ucds.target.remembered import MOST_SHARES, Remembered, number_alike, write_features, write_remembered
from ucds.training.features import read_all
from ucds.training.fitting import build_head, features_to_cluster, fit_prototypes, tell_what_drawing_costs
from ucds.training.prepare import Training, draw_dataset
from ucds.training.run_folder import STABILITY_FILE, TRANSFER_FILE
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

STAGE = "agree"
_BLOCK = 2**22  # numbers of a matrix that are dense at a time

GROUPLESS = 0.3
"""Agreement of the spaces below which the client is told to doubt the clusters. Noise without groups reaches
about 0.15; the least of the photographs and digits tried was 0.41 (100 paintings in 7 classes)."""

SETTLED = 0.7
"""Agreement of the spaces below which the client is told that the confidence is too high;
``docs/consensus.md`` has the figures of eleven domains."""


@dataclass(frozen=True)
class Agreed:
    """The result of the vote; a model is fitted to the shares."""

    partition: Partition  # (n,) cluster of each sample
    shares: FloatArray  # (n, K) of each cluster in each sample, see `soften`; rows sum to 1
    own: Vote  # of the own clusterings, and their consensus
    evidence: Evidence | None  # use of the provider's labels, and its reasons
    averaged: Memberships | None  # (n, K') labels as they are averaged over neighbours


def agree(
    vectors: FloatArray,  # (n, d) features of one domain
    n_clusters: int,
    settings: ConsensusSettings,
    rng: np.random.Generator,  # of k-means and of the vote
    labels: KnownLabels | None = None,  # of a provider, for some samples
    watch: Watch | None = None,
    lengths: bool = False,  # whether distances from the mean count, see `make_spaces`
) -> Agreed:
    """Cluster samples by a vote of partitions in several spaces and, if the guard agrees, of labels."""
    # Step 1: spaces in which the samples fall into clusters.
    chosen, whitening = settings.spaces, settings.whitening
    spaces = make_spaces(vectors, n_clusters, names=chosen, whitening=whitening, lengths=lengths, watch=watch)
    # Step 2: partitions in each space vote, and the consensus is the partition that agrees best with them.
    second = settings.second_opinion
    own = cluster_by_opinions(spaces, n_clusters, rng, choices=settings.voting, second=second, watch=watch)
    partition, evidence, averaged = own.partition, None, None
    voters = [one for one in own.partitions if one.max() < n_clusters]
    weights = np.full(len(voters), 1 / len(voters))
    if labels is not None:
        # Step 3: the guard decides how much the provider's labels count.
        evidence = weigh_labels(own, spaces.graph, labels, settings.transfer, settings.guard)
        averaged = average_labels(spaces, labels)
        if evidence.weight > 0:
            # Step 4: the labels vote, averaged over neighbours and with their weight.
            votes = blend(own.memberships, averaged, evidence.weight)
            partition = refine(votes, average_linkage(votes, n_clusters, rng), n_clusters)
            voters = [*voters, np.asarray(averaged.argmax(1)).ravel()]
            weights = np.append((1 - evidence.weight) * weights, evidence.weight)
    # Step 5: single clusterings tell how sure the cluster of each sample is.
    single = mean_shares(voters, weights, partition, n_clusters)
    return Agreed(partition, soften(partition, single, settings.vote.single_weight), own, evidence, averaged)


def average_labels(spaces: Spaces, labels: KnownLabels) -> Memberships:
    """Average labels over mutual neighbours: ``(n, K')`` memberships.

    A sample without a label first gets the label of the nearest labelled sample.
    """
    from sklearn.neighbors import NearestNeighbors

    everywhere = np.full(len(spaces.principal), -1)
    everywhere[labels.rows] = labels.values
    missing = np.flatnonzero(everywhere < 0)
    if len(missing):
        search = NearestNeighbors(n_neighbors=1).fit(spaces.principal[labels.rows])
        nearest = search.kneighbors(spaces.principal[missing], return_distance=False)[:, 0]
        everywhere[missing] = labels.values[nearest]
    n, width = len(everywhere), int(labels.values.max()) + 1
    shares = spaces.graph @ sparse.csr_array((np.ones(n), everywhere, np.arange(n + 1)), shape=(n, width))
    step = max(1, _BLOCK // width)  # rows of a block: all would take twice the memory of the result, and more
    blocks = [unit_rows(shares[start : start + step].toarray()) for start in range(0, n, step)]
    return sparse.csr_array(sparse.vstack([sparse.csr_array(block) for block in blocks]))


def draw_with_labels(
    work: Work[ConsensusSettings], data: Dataset, labels: ClusterLabels | None
) -> tuple[Dataset, KnownLabels | None]:
    """Draw at most ``most_samples`` samples, labelled ones first, and return them with their labels.

    The labels, if any, are in the order of the samples; labels that occur get new numbers from 0.
    """
    labelled = np.empty(0, np.int64) if labels is None else labels.rows_in(data.samples.ids)
    data, drawn = draw_dataset(work, data, first=(labelled,))
    if labels is None:
        return data, None
    labels, n = labels.take(np.isin(labelled, drawn)), len(data.samples)
    occurring, values = np.unique(labels.labels, return_inverse=True)
    if len(occurring) * n > MOST_SHARES:
        raise InputError(
            f"the labels name {len(occurring):,} clusters, but {n:,} samples allow at most "
            f"{MOST_SHARES // n:,}: ask for labels of a model with fewer clusters"
        )
    return data, KnownLabels(values.astype(np.int64), labels.rows_in(data.samples.ids), labels.n_clusters)


def fit_target_by_consensus(
    work: Work[ConsensusSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
) -> Training:
    """Cluster the frozen features of the target, and fit a head to the shares of the votes.

    The run folder, if there is one, gets ``stability.json``: how far the client's clusterings agree. With
    labels, it also gets ``transfer.json``: how the labels were used, and why. Arguments and errors are those
    of :func:`ucds.target.train.fit_target`.
    """
    everything = len(data.samples)
    data, known = draw_with_labels(work, data, labels)
    features = features_to_cluster(work, encoder, data, n_clusters)

    def cluster() -> FeatureClusters:
        rng, vectors = numpy_generator(work.seed, STAGE), read_all(features)
        lengths = features.samples.kind == "lengths"
        agreed = agree(vectors, n_clusters, work.settings, rng, known, work.watch, lengths)
        _say(work.say, agreed)
        if work.folder is not None:
            write_evidence(work.folder.path, agreed)
            alike = number_alike(agreed.own.partition, agreed.partition)
            remember_vote(work.folder.path, data.samples, agreed, alike)
        return describe_clusters(vectors, agreed.shares, work.settings.bottleneck_width)

    head, found, encoded = build_head(work, STAGE, features, cluster)
    head = fit_prototypes(work, "fit-target", head, encoded, found.assignments)
    if len(data.samples) < everything:
        tell_what_drawing_costs(work, head, encoded, found.assignments, fitted=True)
    if work.folder is not None:
        write_features(work.folder.path, encoded)
    return Training(encoder, head, features, "head", tuple(work.results))


def describe_clusters(vectors: FloatArray, shares: FloatArray, width: int) -> FeatureClusters:
    """Compute the axes (at most ``width``) and the prototypes of a model that starts from given clusters."""
    mean = unit_rows(vectors).mean(0)
    axes, _ = principal_axes(centre(vectors), width)
    projected = unit_rows((unit_rows(vectors) - mean) @ axes)
    prototypes = unit_rows(shares.T @ projected).T
    return FeatureClusters(axes, mean, prototypes, shares.mean(0, keepdims=True), shares)


def _say(say: Callable[[str], None], agreed: Agreed) -> None:
    """Say how far the clusterings agree, and what became of the provider's labels."""
    agreement = agreed.own.agreement
    found = f"agree well ({agreement:.2f} of 1)"
    if agreement < GROUPLESS:
        found = (
            f"hardly agree ({agreement:.2f} of 1), so the clusters may be chance: try fewer clusters, or "
            "another encoder"
        )
    elif agreement < SETTLED:
        found = (
            f"agree only in part ({agreement:.2f} of 1), so fewer samples are in the right cluster than the "
            "confidence says: look at the clusters first"
        )
    say(f"repeated clusterings of your samples {found}")
    if agreed.own.opinion is not None:
        say(describe_opinion(agreed.own.opinion))
    if agreed.evidence is not None:
        say(agreed.evidence.sentence)


def describe_opinion(opinion: Opinion) -> str:
    """Say in a sentence what became of the second opinion."""
    alike = f"a second opinion agrees with the clusters to {opinion.agreement:.2f} of 1"
    if opinion.taken:
        return f"{alike}, and was taken into account"
    return f"{alike}, and was set aside because your samples support it less"


def write_evidence(folder: Path, agreed: Agreed) -> None:
    """Write the evidence for a report: how far the vote agrees, and how the provider's labels were used."""
    agreement = agreed.own.agreement
    stability: dict[str, object] = {
        "own_agreement": agreement,
        "doubtful": agreement < GROUPLESS,
        "overconfident": agreement < SETTLED,
    }
    if (opinion := agreed.own.opinion) is not None:
        stability["second_opinion"] = {
            "taken": opinion.taken,
            "agreement": opinion.agreement,
            "sentence": describe_opinion(opinion),
        }
    write_text_atomically(folder / STABILITY_FILE, json.dumps(stability, indent=2) + "\n")
    if agreed.evidence is not None:
        transfer = agreed.evidence.to_dict()
        write_text_atomically(folder / TRANSFER_FILE, json.dumps(transfer, indent=2) + "\n")


def remember_vote(folder: Path, samples: Samples, agreed: Agreed, clusters: Partition) -> None:
    """Write the vote about the samples, for a review that starts from the clusters ``(n,)``."""
    partitions, own = np.array(agreed.own.partitions), agreed.own
    labels = None if agreed.averaged is None else agreed.averaged.toarray()
    ids, keys = tuple(samples.ids), samples.keys
    write_remembered(folder, Remembered(ids, partitions, clusters, own.n_clusters, keys, labels))
