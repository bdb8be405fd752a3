"""Spaces in which the samples of one domain fall into clusters, made from the features of an encoder.

An encoder that was trained for something else spreads its variance over directions that have nothing to do
with the groups sought. Three steps bring out the groups, without labels: subtracting the domain's own mean,
which says nothing about differences between its samples; taking the roots of the variances, so that the
widest directions count for less; and averaging every sample with its mutual nearest neighbours.

No single step is best for every data set, so :func:`make_spaces` gives several spaces, for a consensus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.choices import SPACES, Space
from ucds.math.arrays import FloatArray, Watch, counted

WIDTH = 64
"""Principal axes of a space."""

_NEIGHBOURS = 10  # of a sample at most
_ROUNDS = 3  # of averaging a sample with its neighbours

_BLOCK = 4096  # samples whose neighbours are searched at a time

_MOST_FEATURES = 256  # further principal components of a centred space carry next to nothing


def unit_rows(vectors: FloatArray) -> FloatArray:
    """Scale the rows of ``(n, d)`` vectors to unit length; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def centre(vectors: FloatArray, mean: FloatArray | None = None) -> FloatArray:
    """Compute the directions ``(n, d)`` from the mean of a domain to its samples, as unit vectors.

    ``mean`` is the ``(d,)`` mean of the domain's unit vectors; computed from ``vectors`` if ``None``.
    """
    directions = unit_rows(vectors)
    return unit_rows(directions - (directions.mean(0) if mean is None else mean))


def principal_axes(vectors: FloatArray, width: int) -> tuple[FloatArray, FloatArray]:
    """Find the axes of largest variance, widest first, without subtracting a mean (see :func:`centre`).

    Returns:
        ``(d, w)`` axes as columns, ``width`` at most, and ``(w,)`` roots of the sums of squares along them.
    """
    # On one thread: the last bits depend on their number, and several wait for each other at every step,
    # which takes ten times as long where other work has a processor.
    with threadpool_limits(1, "blas"):
        rows = vectors.astype(np.float64)
        # Both products have the same eigenvalues but zeros: the smaller one is decomposed.
        by_samples = len(rows) < rows.shape[1]
        values, axes = np.linalg.eigh(rows @ rows.T if by_samples else rows.T @ rows)
        order = np.argsort(values)[::-1][: min(width, *rows.shape)]
        axes, scales = axes[:, order], np.sqrt(np.maximum(values[order], 0))
        kept = scales > 1e-6 * scales[0]
        kept[0] = True
        axes, scales = axes[:, kept], scales[kept]
        if by_samples:
            axes = rows.T @ axes / np.maximum(scales, np.finfo(np.float64).tiny)
    # A sign has no meaning; fixing it makes results alike on all machines.
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    return np.asarray(axes * signs, dtype=np.float32), np.asarray(scales, dtype=np.float32)


def project(
    vectors: FloatArray, axes: FloatArray, scales: FloatArray, whitening: float, lengths: bool = False
) -> FloatArray:
    """Project vectors onto principal axes, each divided by a power of its scale, and return unit vectors.

    If ``lengths`` count, the vectors are not scaled to unit length.

    A ``whitening`` of 0 keeps the variances, 1 makes them equal, and one half takes their roots.
    """
    scales = scales / scales[0] if lengths else scales  # the longest axis stays as it is
    weighted = np.asarray(axes / np.maximum(scales, 1e-12) ** whitening, dtype=np.float32)
    with threadpool_limits(1, "blas"):
        return vectors @ weighted if lengths else unit_rows(vectors @ weighted)


def mutual_neighbours(vectors: FloatArray, count: int, *, watch: Watch | None = None) -> sparse.csr_array:
    """Link samples that are among each other's nearest neighbours, and each sample with itself.

    Links in one direction only would connect groups of different density, and are left out. Row i of the
    ``(n, n)`` row-stochastic matrix averages over sample i and its mutual neighbours, at most ``count``.
    """
    from sklearn.neighbors import NearestNeighbors

    count = min(count, len(vectors) - 1)
    search = NearestNeighbors(n_neighbors=count + 1, algorithm="brute").fit(vectors)
    firsts = range(0, len(vectors), _BLOCK)
    blocks = [
        search.kneighbors_graph(vectors[first : first + _BLOCK])
        for first in counted(watch, "find neighbours", firsts)
    ]
    graph = sparse.csr_array(sparse.vstack(blocks, format="csr"), dtype=np.float32)
    graph = graph.maximum(sparse.eye_array(len(vectors), dtype=np.float32, format="csr"))
    mutual = sparse.csr_array(graph.minimum(graph.T))
    return sparse.csr_array(sparse.diags_array(1 / mutual.sum(1)) @ mutual, dtype=np.float32)


def diffuse(vectors: FloatArray, graph: sparse.csr_array, rounds: int, lengths: bool = False) -> FloatArray:
    """Average ``(n, d)`` unit vectors with their neighbours, as the rows of ``graph`` say, several times."""
    for _ in range(rounds):
        vectors = graph @ vectors if lengths else unit_rows(graph @ vectors)
    return vectors


def reduce_features(vectors: FloatArray, lengths: bool = False) -> FloatArray:
    """Compute the space "features" of the ``(n, d)`` features of one domain, see :func:`make_spaces`."""
    return project(*_shift(vectors, _MOST_FEATURES, lengths), 0.0, lengths)


def principal_space(
    vectors: FloatArray, lengths: bool = False
) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """Compute the space "principal" of ``(n, d)`` features, with a function that maps others to it."""
    mean = np.zeros(vectors.shape[1], np.float32) if lengths else unit_rows(vectors).mean(0)
    shifted, axes, scales = _shift(vectors, WIDTH, lengths)
    middle = (vectors if lengths else centre(vectors)).mean(0)

    def see(others: FloatArray) -> FloatArray:
        return project((others if lengths else centre(others, mean)) - middle, axes, scales, 0.5, lengths)

    return project(shifted, axes, scales, 0.5, lengths), see


def _shift(vectors: FloatArray, width: int, lengths: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centre vectors, and subtract the mean again; return them with their principal axes and scales."""
    centred = vectors if lengths else centre(vectors)
    shifted = centred - centred.mean(0)
    return shifted, *principal_axes(shifted, width)


@dataclass(frozen=True)
class Spaces:
    """Several representations of the samples of one domain."""

    vectors: dict[Space, FloatArray]  # `(n, w)` by name of the space, see `make_spaces`
    features: FloatArray  # `(n, w)` those of the space of this name, whatever the names
    principal: FloatArray  # `(n, w)` those in which neighbours are searched, whatever the names
    graph: sparse.csr_array  # `(n, n)` row-stochastic matrix that averages over mutual neighbours


def make_spaces(
    vectors: FloatArray,
    n_clusters: int,
    *,
    names: tuple[Space, ...] = SPACES,
    width: int = WIDTH,
    whitening: float = 0.5,
    lengths: bool = False,
    watch: Watch | None = None,
) -> Spaces:
    """Build the spaces whose clusterings are to be compared.

    Args:
        vectors: ``(n, d)`` features of one domain.
        n_clusters: number of clusters, K; neighbourhoods are no larger than half an average cluster.
        names: names of the spaces. "features": centred, on the unit sphere. "principal": whitened
            principal axes of "features". "diffused-features", "diffused-principal": each of the two, with
            every sample averaged with its mutual nearest neighbours in "principal".
        width: number of principal axes.
        whitening: 0 keeps the variances along the axes, 1 makes them equal.
        lengths: whether the distances of vectors from their mean count; no space is on the sphere then.
        watch: called while the neighbours are searched.
    """
    shifted, axes, scales = _shift(vectors, max(width, _MOST_FEATURES), lengths)
    plain = {
        "features": project(shifted, axes[:, :_MOST_FEATURES], scales[:_MOST_FEATURES], 0.0, lengths),
        "principal": project(shifted, axes[:, :width], scales[:width], whitening, lengths),
    }
    count = int(np.clip(len(vectors) / n_clusters / 2, 1, _NEIGHBOURS))  # half an average cluster
    graph = mutual_neighbours(plain["principal"], count, watch=watch)
    spaces: dict[Space, FloatArray] = {}
    for name in names:
        base = plain[name.removeprefix("diffused-")]
        spaces[name] = diffuse(base, graph, _ROUNDS, lengths) if name.startswith("diffused-") else base
    return Spaces(spaces, plain["features"], plain["principal"], graph)
