"""Lets the clusters of a run grow by new samples; steps have the numbers of ``docs/updating.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.config import ConsensusSettings
from ucds.math import novelty
from ucds.math.arrays import FloatArray, IntArray, Watch
from ucds.math.consensus import Partition, average_linkage, blend, refine
from ucds.math.corrections import ASIDE
from ucds.math.growth import join, keep_numbers, worth_proposing
from ucds.math.kmeans import draw_representatives
from ucds.math.spaces import principal_space
from ucds.target.agreement import Agreed, agree
from ucds.target.guard import KnownLabels
from ucds.target.review import WORTH_ASKING

_MOST_COMPARED = 20_000  # samples that vote; of more, the others vote like the nearest of these
_FEWEST_MOVED = 3  # samples of a cluster that a proposal moves


@dataclass(frozen=True, eq=False)
class Growth:
    """Clusters of old and new samples.

    A sample is proposed for the cluster where it would be if all were clustered anew, or for the nearest one
    if it waits.
    """

    clusters: Partition  # (n,) numbers of the clusters; -1 for samples in none
    n_clusters: int  # those without samples included
    proposed: Partition  # (n,) cluster that is proposed for each sample; its own otherwise
    partitions: NDArray[np.integer[Any]]  # (P, n) clusterings that voted
    labels: FloatArray | None  # (n, K') provider's labels, averaged over neighbours
    agreed: Agreed  # vote of the samples that were compared


def grow(
    features: FloatArray,  # (n, d) of old and new samples
    clusters: Partition,  # (n,) of old samples; -1 for new ones, and for those in no cluster
    held: NDArray[np.bool_],  # (n,) whether a person has said where a sample belongs, be it in no cluster
    n_clusters: int,  # those without samples included
    settings: ConsensusSettings,
    rng: np.random.Generator,
    labels: KnownLabels | None = None,  # of a provider, for some samples
    *,
    lengths: bool = False,  # whether distances from the mean count, see `make_spaces`
    watch: Watch | None = None,
) -> Growth:
    """Let new samples join clusters, and make clusters of new kinds."""
    is_new, living, n = (clusters < 0) & ~held, len(np.unique(clusters[clusters >= 0])), len(clusters)
    # 2. Old and new samples vote together, as in a training.
    agreed, nearest = _agree(features, is_new, living, labels, settings, rng, lengths, watch)
    votes, averaged = agreed.own.memberships, agreed.averaged
    if agreed.evidence is not None and averaged is not None and agreed.evidence.weight > 0:
        votes = blend(votes, averaged, agreed.evidence.weight)
    votes, voted = votes[nearest], np.array(agreed.own.partitions)
    # 3. Groups of new samples that no chance explains are clusters from the start. All others join.
    start, number = clusters.copy(), n_clusters
    for group in novelty.scan(votes, is_new, living, rng):
        start[group], number = number, number + 1
    joined = join(votes, start, held)
    # 4. New samples that fit nowhere, and have joined an old cluster, wait for a person's word.
    known = novelty.draw_known(clusters, rng)
    p_values = novelty.fit(features[known], features[is_new], living, rng, lengths)
    strangers = np.flatnonzero(is_new)[novelty.reject(p_values)]
    own = joined.copy()
    own[strangers[joined[strangers] < n_clusters]] = ASIDE
    # 5. What everything anew would change is proposed.
    anew, more = agreed.partition[nearest], living + number - n_clusters
    if more > living:
        anew = refine(votes, average_linkage(votes, more, rng), more)
    least = max(_FEWEST_MOVED, int(np.ceil(WORTH_ASKING * n)))
    proposed = np.where(held, own, worth_proposing(keep_numbers(anew, own, number), own, least))
    waits = (own == ASIDE) & ~held
    proposed[waits] = joined[waits]
    return Growth(
        own,
        number,
        proposed,
        voted.astype(np.min_scalar_type(voted.max()))[:, nearest],
        None if averaged is None else averaged[nearest].toarray(),
        agreed,
    )


def _agree(
    features: FloatArray,
    is_new: NDArray[np.bool_],
    n_clusters: int,
    labels: KnownLabels | None,
    settings: ConsensusSettings,
    rng: np.random.Generator,
    lengths: bool,
    watch: Watch | None,
) -> tuple[Agreed, IntArray]:
    """Cluster all samples, or some of many, anew; return also which clustered one stands for each sample."""
    new, old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
    some = new[draw_representatives(len(new), rng, max(_MOST_COMPARED // 2, _MOST_COMPARED - len(old)))]
    others = old[draw_representatives(len(old), rng, _MOST_COMPARED - len(some))]
    seen = rng.permutation(np.concatenate([some, others]))  # no place tells which samples are new
    place, known = np.full(len(features), -1), None
    place[seen] = np.arange(len(seen))
    if labels is not None and (here := place[labels.rows] >= 0).any():
        rows, order = place[labels.rows[here]], np.argsort(place[labels.rows[here]])
        values = np.unique(labels.values[here], return_inverse=True)[1].astype(np.int64)
        known = KnownLabels(values[order], rows[order], labels.n_clusters)
    agreed = agree(features[seen], n_clusters, settings, rng, known, watch, lengths)
    rest = np.flatnonzero(place < 0)
    if len(rest):
        from sklearn.neighbors import NearestNeighbors  # it takes a while to load

        space, see = principal_space(features[seen], lengths)
        search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(space)
        for rows in np.array_split(rest, -(-len(rest) // _MOST_COMPARED)):  # all would take much memory
            place[rows] = search.kneighbors(see(features[rows]), return_distance=False)[:, 0]
    return agreed, place
