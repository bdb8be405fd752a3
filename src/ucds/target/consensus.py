"""The target's clustering in the recipe ``ucds``: a consensus over spaces, and over the provider's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ucds.config import Config
from ucds.data.samples import IntArray
from ucds.partitions import Partition, consensus, kmeans_partitions, vote_shares
from ucds.spaces import (
    FloatArray,
    centre,
    make_spaces,
    mutual_neighbours,
    neighbours_within,
    principal_space,
    unit_rows,
)
from ucds.target.guard import Evidence, weigh_labels


@dataclass(frozen=True)
class Agreed:
    """What the clusterings of one set of samples agree on.

    Attributes:
        partition: ``(n,)`` cluster of each sample.
        shares: ``(n, K)`` of the votes for each cluster, rows sum to 1. Half of all votes is the partition's.
        evidence: how the provider's labels were weighed; ``None`` if there were none.
    """

    partition: Partition
    shares: FloatArray
    evidence: Evidence | None


def agree(
    vectors: FloatArray,
    n_clusters: int,
    config: Config,
    rng: np.random.Generator,
    *,
    labels: Partition | None = None,
    rows: IntArray | None = None,
) -> Agreed:
    """Cluster samples by the vote of k-means in several spaces and, if they deserve it, of the labels.

    Labels that the guard trusts shape the spaces: each is clustered a second time with the labels, averaged
    over mutual neighbours, as further coordinates. Labels that it half trusts vote like one more space.

    Args:
        vectors: features ``(n, d)`` of one domain.
        n_clusters: the paper's ``K``.
        config: the recipe's settings.
        rng: of k-means' starts.
        labels: ``(m,)`` a provider's; of any number of clusters.
        rows: ``(m,)`` samples that they belong to; all, in order, if ``None``.
    """
    spaces = make_spaces(
        vectors,
        n_clusters,
        names=config.spaces,
        width=config.space_width,
        whitening=config.whitening,
        neighbours=config.neighbours,
        rounds=config.diffusion_rounds,
    )
    starts = config.space_partitions
    own = [kmeans_partitions([space], n_clusters, starts, rng) for space in spaces.values()]
    votes = [partition for space in own for partition in space]
    partition, evidence = consensus(votes, n_clusters, rng), None
    if labels is not None:
        rows = np.arange(len(vectors)) if rows is None else rows
        evidence = weigh_labels(
            own,
            partition,
            labels,
            rows,
            trusted=config.trusted_agreement,
            least=config.least_agreement,
            transfer=config.transfer,
        )
        principal = spaces.get("principal")
        if principal is None:
            principal = principal_space(centre(vectors), config.space_width, config.whitening)
        everywhere = _complete(principal, labels, rows)
        if evidence.use == "consensus":
            votes += [everywhere] * starts
        elif evidence.use == "transferred":
            count = neighbours_within(len(vectors), n_clusters, config.neighbours)
            smooth = mutual_neighbours(principal, count) @ np.eye(int(labels.max()) + 1)[everywhere]
            shaped = (np.hstack([space, unit_rows(smooth)]) for space in spaces.values())
            votes += kmeans_partitions(shaped, n_clusters, starts, rng)
        if evidence.use != "own":
            partition = consensus(votes, n_clusters, rng)
    # What all agree on counts as much as all who agreed: dissent remains, as doubt and not as noise.
    shares = vote_shares(votes + [partition] * len(votes), partition, n_clusters)
    return Agreed(partition, shares, evidence)


def _complete(space: FloatArray, labels: Partition, rows: IntArray) -> Partition:
    """A label for every sample: its own, or that of the nearest sample that has one."""
    everywhere = np.full(len(space), -1)
    everywhere[rows] = labels
    missing = np.flatnonzero(everywhere < 0)
    if len(missing):
        search = NearestNeighbors(n_neighbors=1).fit(space[rows])
        everywhere[missing] = labels[search.kneighbors(space[missing], return_distance=False)[:, 0]]
    return everywhere
