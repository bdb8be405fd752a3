"""Embeds samples by the loss of UMAP so that neighbours stay neighbours, in arrays.

The samples become a graph: the weight of a link is how certainly two samples are neighbours. Positions then
descend the cross-entropy between the graph and the similarities of positions, ``1 / (1 + a d^(2b))`` at
distance d. Links attract, and all pairs repel. UMAP draws links and pairs one by one, in compiled loops. Here
every step takes all links, and the same few repelling samples for all: a few operations on arrays.

Source:
    L. McInnes, J. Healy and J. Melville, UMAP: Uniform manifold approximation and projection, 2018.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.math.arrays import FloatArray
from ucds.math.spaces import unit_rows

LARGEST = 10_000
"""Samples at most that are placed in the plane by themselves; further ones follow the most similar ones."""

_A, _B = np.float32(1.929), np.float32(0.7915)  # UMAP's, for positions that may coincide (min_dist 0)
_REPELLING = 64  # samples that repel all others in a step
_NEGATIVES = 5  # repelling samples for each neighbour, by whose number the repulsion is weighted
_START = 10.0  # positions are drawn from -10 to 10
_LONGEST = np.float32(4.0)  # way of a sample in a step
_NEAREST = np.float32(1e-8)  # squared distance at least, as powers need one


def embed(
    vectors: FloatArray, width: int, rng: np.random.Generator, *, neighbours: int, steps: int
) -> FloatArray:
    """Place ``(n, d)`` unit vectors in ``width`` dimensions, neighbours near each other.

    The result does not depend on the number of threads, if libraries use one thread each.

    A sample is linked with its nearest neighbours, itself among them.
    """
    graph = link_neighbours(vectors, neighbours)
    start = rng.uniform(-_START, _START, (len(vectors), width)).astype(np.float32)
    return _descend(graph, start, rng, steps)


def link_neighbours(vectors: FloatArray, count: int) -> sparse.csr_array:
    """Build the symmetric ``(n, n)`` matrix of certainty, 0 to 1, that two unit vectors are neighbours.

    A sample's nearest neighbour has certainty 1; for further neighbours, the certainty falls with the
    relative distance. The certainties of a sample sum to the binary logarithm of ``count``. Two samples are
    neighbours if either counts the other as one.
    """
    from sklearn.neighbors import NearestNeighbors

    n, count = len(vectors), min(count, len(vectors))
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(vectors)
    distances, nearest = (found[:, 1:] for found in search.kneighbors(vectors))
    cosine = distances.astype(np.float64) ** 2 / 2
    excess = cosine - cosine[:, :1]
    low, high = np.zeros((n, 1)), np.full((n, 1), np.inf)
    scale = np.ones((n, 1))
    for _ in range(64):  # by bisection
        above = np.exp(-excess / scale).sum(1, keepdims=True) > np.log2(count)
        low, high = np.where(above, low, scale), np.where(above, scale, high)
        scale = np.where(np.isinf(high), 2 * scale, (low + high) / 2)
    scale = np.maximum(scale, 1e-3 * cosine.mean() + 1e-12)  # where many are equally near
    sure = np.exp(-excess / scale)
    ends = np.arange(0, sure.size + 1, count - 1)
    one_way = sparse.csr_array((sure.ravel(), nearest.ravel(), ends), shape=(n, n))
    return sparse.csr_array(one_way + one_way.T - one_way * one_way.T, dtype=np.float32)


def _descend(
    graph: sparse.csr_array, positions: FloatArray, rng: np.random.Generator, steps: int
) -> FloatArray:
    """Move ``(n, w)`` positions down the cross-entropy between a graph and their similarities."""
    graph.data[graph.data < graph.data.max() / steps] = 0  # links that UMAP would never draw
    graph.eliminate_zeros()
    graph.sort_indices()
    n, degrees = graph.shape[0], np.asarray(graph.sum(1))
    # Both entries of a link have one force: it is computed once, for the entry in the upper half.
    ones, others = graph.tocoo().coords
    upper = np.flatnonzero(ones < others)
    lower = np.lexsort((ones, others))[upper]  # where the transpose, entry by entry, lies in the graph
    ones, others, sureness = ones[upper], others[upper], graph.data[upper]
    pull, order = graph.copy(), rng.permutation(n)
    repelling, across = min(_REPELLING, n), np.empty((len(ones), positions.shape[1]), np.float32)
    for step in range(steps):
        np.take(positions, ones, axis=0, out=across, mode="clip")  # else it would be copied once more
        across -= positions[others]
        squares = np.maximum(np.einsum("ew,ew->e", across, across), _NEAREST)
        powers = np.exp((_B - 1) * np.log(squares))
        pull.data[upper] = pull.data[lower] = 4 * _A * _B * sureness * powers / (1 + _A * powers * squares)
        force = pull @ positions - np.asarray(pull.sum(1))[:, None] * positions
        some = np.take(order, np.arange(step * repelling, (step + 1) * repelling), mode="wrap")
        force += _repel(positions, some) * (_NEGATIVES / repelling * degrees[:, None])
        force *= np.float32(1 - step / steps)
        lengths = np.sqrt(np.einsum("nw,nw->n", force, force))[:, None]
        positions = positions + force * (_LONGEST / np.maximum(lengths, _LONGEST))
    return positions


def _repel(positions: FloatArray, some: NDArray[np.int64]) -> FloatArray:
    """Sum the forces ``(n, w)`` by which some samples repel all."""
    fixed, lengths = positions[some], np.einsum("nw,nw->n", positions, positions)
    squares = positions @ (-2 * fixed.T)  # and on in place: new arrays would take twice the time
    squares += lengths[:, None]
    squares += lengths[some]
    force = np.log(np.maximum(squares, _NEAREST, out=squares))
    force *= _B
    np.exp(force, out=force)
    force *= _A
    force += 1
    squares += np.float32(0.001)
    force *= squares
    np.divide(2 * _B, force, out=force)
    force[some, np.arange(len(some))] = 0
    total: FloatArray = force.sum(1, keepdims=True) * positions
    total -= force @ fixed
    return total


def place_all(features: ArrayLike, largest: int = LARGEST) -> NDArray[np.float64]:
    """Place every sample in the plane, for a map: ``(n, 2)`` points, equal ones for equal features.

    Above ``largest`` samples, that many are drawn and embedded. Each further sample is placed in the middle
    of the three most similar ones.
    """
    from sklearn.neighbors import NearestNeighbors

    vectors, rng = unit_rows(np.asarray(features)), np.random.default_rng(0)
    if len(vectors) < 2:
        return np.zeros((len(vectors), 2))
    chosen = np.sort(rng.permutation(len(vectors))[:largest])
    with threadpool_limits(1):  # the figure must not depend on the number of processors
        placed = embed(vectors[chosen], 2, rng, neighbours=10, steps=500).astype(np.float64)
        if len(chosen) < len(vectors):
            search = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(vectors[chosen])
            everything = placed[search.kneighbors(vectors, return_distance=False)].mean(1)
            everything[chosen] = placed
            placed = everything
    return placed
