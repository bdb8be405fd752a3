"""Other ways to label images with differential privacy, to be compared with `train-source --dp-epsilon`.

Each labels a client's images from the provider's features, a budget in zero-concentrated differential privacy
(zCDP) and public images of other classes, from which anything may be learned for nothing.

- "public alone": clusters of the public images; epsilon is 0;
- "Lloyd, ... start": noisy steps of Lloyd's algorithm on all domains together, from random directions, from
  directions far from each other, or from clusters of the public images;
- "histogram": private samples vote for the nearest of 500 public images, which are then clustered with their
  noisy counts as weights (private evolution without a generator of further candidates);
- "selected": one of 16 sets of public prototypes, drawn by the exponential mechanism;
- "PATE": noisy votes of 40 models, each of a shard of the private samples, for 500 images of the client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from ucds.math.arrays import FloatArray
from ucds.math.privacy import noise_scale
from ucds.math.private_prototypes import AddNoise, Array, Release, bounded, find_private_space, releases
from ucds.math.spaces import centre, principal_axes, unit_rows

Labels = NDArray[np.int64]
Vectors = NDArray[np.floating[Any]]

STEPS = 5
MEANS = 0.1  # part of the budget for the means of the domains
WIDTH = 64  # public principal axes
CANDIDATES, SETS, SHARDS, ANSWERS = 500, 16, 40, 500


@dataclass(frozen=True)
class Task:
    """What a rival may see.

    Attributes:
        source: ``(n, d)`` features of the provider.
        domain: ``(n,)`` their domains.
        client: ``(m, d)`` directions of the client's samples from their mean.
        public: ``(p, d)`` directions of public samples from the means of their domains.
        directions: ``(d, q)`` public directions of the encoder.
        n_clusters: number of clusters, K.
        rho: budget in zCDP; infinity stands for no noise.
        add_noise: source of Gaussian noise.
        seed: seed of all other draws.
    """

    source: FloatArray
    domain: Labels
    client: FloatArray
    public: FloatArray
    directions: Array
    n_clusters: int
    rho: float
    add_noise: AddNoise
    seed: int

    @property
    def rng(self) -> np.random.Generator:
        """Generator of the draws, from its beginning."""
        return np.random.default_rng(self.seed)


def seen_from_domains(vectors: FloatArray, domain: Labels) -> FloatArray:
    """Directions ``(n, d)`` of samples from the means of their domains."""
    seen = np.empty_like(vectors)
    for d in np.unique(domain):
        seen[domain == d] = centre(vectors[domain == d])
    return seen


def cluster(vectors: Vectors, n_clusters: int, seed: int, weights: Vectors | None = None) -> Array:
    """Unit prototypes ``(K, d)`` of one run of k-means."""
    found = KMeans(n_clusters, n_init=1, random_state=seed).fit(vectors, sample_weight=weights)
    return bounded(found.cluster_centers_)


def nearest_of(vectors: Vectors, prototypes: Vectors) -> Labels:
    return np.asarray((vectors @ prototypes.T).argmax(1), dtype=np.int64)


def public_alone(task: Task) -> Labels:
    return nearest_of(task.client, cluster(task.public, task.n_clusters, task.seed))


def lloyd_from_random(task: Task) -> Labels:
    return _lloyd(task, lambda axes: bounded(task.rng.standard_normal((task.n_clusters, axes.shape[1]))))


def lloyd_from_spread(task: Task) -> Labels:
    return _lloyd(task, lambda axes: spread_directions(task.n_clusters, axes.shape[1], task.rng))


def lloyd_from_public(task: Task) -> Labels:
    return _lloyd(task, lambda axes: bounded(cluster(task.public, task.n_clusters, task.seed) @ axes))


def spread_directions(count: int, width: int, rng: np.random.Generator) -> Array:
    """Unit vectors ``(count, width)``: each is, of many random ones, the farthest from all before it."""
    many = bounded(rng.standard_normal((100 * count, width)))
    chosen, closest = [0], many @ many[0]
    while len(chosen) < count:
        chosen.append(int(closest.argmin()))
        closest = np.maximum(closest, many @ many[chosen[-1]])
    return np.asarray(many[chosen])


def _lloyd(task: Task, start: Callable[[Array], Array]) -> Labels:
    """Steps of Lloyd's algorithm with six tenths of the budget, in the space of our method."""
    release, weights = releases(task.rho, task.add_noise), np.ones(len(task.source))
    space = find_private_space(
        task.source, task.domain, weights, release, task.rng, directions=task.directions
    )
    prototypes = start(space.axes)
    for _ in range(STEPS):
        members = np.eye(task.n_clusters)[nearest_of(space.samples, prototypes)]
        sums = release(members.T @ space.samples, 0.6 / STEPS)
        prototypes = bounded(sums + 1e-9 * prototypes)  # one without samples stays where it is
    return nearest_of(task.client @ space.axes, prototypes)


def histogram(task: Task) -> Labels:
    axes, samples, release = _see_publicly(task)
    candidates = unit_rows(task.rng.permutation(task.public)[:CANDIDATES] @ axes)
    votes = np.bincount(nearest_of(samples, candidates), minlength=len(candidates)).astype(np.float64)
    weights = np.maximum(release(votes, 1 - MEANS), 1e-6)
    prototypes = cluster(candidates, task.n_clusters, task.seed, weights)
    return nearest_of(task.client @ axes, prototypes)


def selected(task: Task) -> Labels:
    axes, samples, _ = _see_publicly(task)
    public = unit_rows(task.public @ axes)
    sets = [cluster(public, task.n_clusters, SETS * task.seed + i) for i in range(SETS)]
    # A sample adds between 0 and 1 to the merit of a set.
    merits = np.array([(1 + (samples @ prototypes.T).max(1)).sum() / 2 for prototypes in sets])
    chosen = exponential_mechanism(merits, task.rho * (1 - MEANS), task.rng)
    return nearest_of(task.client @ axes, sets[chosen])


def _see_publicly(task: Task) -> tuple[FloatArray, FloatArray, Release]:
    """Public axes ``(d, w)``, private samples ``(n, w)`` from their noisy means, and how to release more."""
    axes, scales = principal_axes(task.public, WIDTH)
    release = releases(task.rho, task.add_noise)
    samples = bounded(bounded(task.source) @ axes)
    members = np.eye(int(task.domain.max()) + 1)[task.domain]
    means = release(members.T @ samples, MEANS) / members.sum(0)[:, None]
    weighted = np.sqrt(scales[0] / scales)
    seen = unit_rows((samples - means[task.domain]).astype(np.float32) * weighted)
    return axes * weighted, seen, release


def exponential_mechanism(merits: Array, rho: float, rng: np.random.Generator) -> int:
    """Draw one of several candidates with rho-zCDP, the better ones more often.

    Args:
        merits: ``(c,)`` sums to which a sample adds between 0 and 1.
        rho: budget in zCDP; infinity takes the best.
        rng: generator of the draw.

    Source:
        M. Cesar and R. Rogers, Bounding, concentrating, and truncating: unifying privacy loss composition for
        data analytics, 2021. A sample changes the difference of two merits by 1 at most, so that weights of
        ``exp(epsilon * merit)`` have a loss of range ``epsilon``, which is ``epsilon^2 / 8``-zCDP.
    """
    if math.isinf(rho):
        return int(merits.argmax())
    return int((math.sqrt(8 * rho) * merits + rng.gumbel(size=len(merits))).argmax())


def pate(task: Task) -> Labels:
    """Labels ``(m,)`` of the client's samples; -1 for all but :data:`ANSWERS` of them, drawn at random."""
    reference = cluster(task.public, task.n_clusters, task.seed)
    asked = np.sort(task.rng.permutation(len(task.client))[:ANSWERS])
    shards = task.rng.permutation(len(task.source)) % SHARDS
    counts = np.zeros((len(asked), task.n_clusters))
    for shard in range(SHARDS):
        mine = shards == shard
        own = cluster(seen_from_domains(task.source[mine], task.domain[mine]), task.n_clusters, task.seed)
        # Shards number their clusters alike, because each is matched with the same public prototypes.
        order = linear_sum_assignment(reference @ own.T, maximize=True)[1]
        counts += np.eye(task.n_clusters)[nearest_of(task.client[asked], own[order])]
    labels = np.full(len(task.client), -1)
    labels[asked] = noisy_answers(counts, task.rho, task.add_noise)
    return labels


def noisy_answers(counts: Array, rho: float, add_noise: AddNoise) -> Labels:
    """Answer ``(q,)`` questions by the largest of the noisy counts of votes, all together with rho-zCDP.

    One sample changes the vote of one shard in each answer, and so two counts by 1: all counts together by
    the root of twice the number of answers.

    Args:
        counts: ``(q, K)`` number of shards that vote for each cluster.
        rho: budget in zCDP; infinity adds no noise.
        add_noise: source of Gaussian noise.
    """
    scale = math.sqrt(2 * len(counts)) * noise_scale(rho)
    return np.asarray(add_noise(counts, scale).argmax(1), dtype=np.int64)


RIVALS: Mapping[str, Callable[[Task], Labels]] = {
    "public alone": public_alone,
    "Lloyd, random start": lloyd_from_random,
    "Lloyd, spread start": lloyd_from_spread,
    "Lloyd, public start": lloyd_from_public,
    "histogram": histogram,
    "selected": selected,
    "PATE": pate,
}
