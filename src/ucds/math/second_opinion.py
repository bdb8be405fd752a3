"""Asks embeddings of neighbours for a second opinion on the consensus of a domain; for both sides.

Embeddings show groups of any shape, which the spaces of the first vote do not show, but they also divide
groups without a gap. So three figures decide whether it counts; letters as in ``docs/consensus.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ucds.choices import OpinionChoices, VoteChoices
from ucds.math import consensus
from ucds.math.arrays import Watch, counted
from ucds.math.consensus import USUAL, Opinion, Partition, Vote
from ucds.math.embedding import embed
from ucds.math.kmeans import draw_representatives, side_by_side
from ucds.math.spaces import Spaces

SECOND = OpinionChoices()


def cluster_by_opinions(
    spaces: Spaces,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    choices: VoteChoices = USUAL,
    second: OpinionChoices = SECOND,
    watch: Watch | None = None,
) -> Vote:
    """Cluster the samples by vote, and let a second opinion vote too if three figures allow it."""
    from sklearn.metrics import adjusted_mutual_info_score
    from sklearn.neighbors import NearestNeighbors

    own = consensus.cluster_by_vote(
        list(spaces.vectors.values()), n_clusters, rng, choices=choices, watch=watch
    )
    n = len(spaces.principal)
    if not second.draws or n < second.neighbours * n_clusters:  # a neighbourhood would hold several clusters
        return own
    # d. The second opinion is the consensus of a vote in embeddings of "features" and "principal".
    seen = draw_representatives(n, rng)
    bases = [space[seen] for space in (spaces.features, spaces.principal) for _ in range(second.draws)]
    with side_by_side() as pool:
        jobs = [
            pool.submit(embed, base, second.width, draw, neighbours=second.neighbours, steps=second.steps)
            for base, draw in zip(bases, rng.spawn(len(bases)), strict=True)
        ]
        placed = [job.result() for job in counted(watch, "embed", jobs)]
    # It takes a second or two, whatever the number of samples, so that nobody is told of its parts.
    found = consensus.cluster_by_vote(placed, n_clusters, rng, choices=choices)
    other, others = found.partition, found.partitions
    if len(seen) < n:  # a sample that has no place votes like the nearest sample that has one
        search = NearestNeighbors(n_neighbors=1).fit(spaces.principal[seen])
        nearest = search.kneighbors(spaces.principal, return_distance=False)[:, 0]
        other, others = other[nearest], [one[nearest] for one in others]
    # e. From the second opinion on, the votes of both move samples; this gives the joint partition.
    votes = consensus.blend(own.memberships, consensus.memberships(others), second.weight)
    joint, _ = consensus.settle(votes, other, n_clusters)
    # f. It is taken if it is about as tight, as well kept together and as even as the own consensus.
    before, after = (_measure(spaces, one, n_clusters) for one in (own.partition, joint))
    taken = (
        after[0] <= second.most_inertia * before[0]
        and abs(after[1] / before[1] - 1) <= second.most_change
        and before[2] - after[2] <= second.most_fall
    )
    opinion = Opinion(taken, float(adjusted_mutual_info_score(own.partition, other)), others)
    chosen = {"memberships": votes, "partition": joint} if taken else {}
    return replace(own, opinion=opinion, **chosen)


def _measure(spaces: Spaces, partition: Partition, n_clusters: int) -> tuple[float, float, float]:
    """Return inertia in the last space, share of links inside clusters, and evenness of the cluster sizes."""
    from scipy.stats import entropy  # it takes a while to load

    links = spaces.graph.tocoo()
    ones, others = links.coords
    inside = float(links.data[partition[ones] == partition[others]].sum() / links.data.sum())
    evenness = float(entropy(np.bincount(partition)) / np.log(max(n_clusters, 2)))
    *_, last = spaces.vectors.values()
    return consensus.inertias(last, [partition], n_clusters)[0], inside, evenness
