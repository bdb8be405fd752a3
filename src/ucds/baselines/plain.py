"""Plain clusterings of frozen features, which common libraries offer, without labels.

All take ``(n, d)`` vectors, whose lengths do not matter, a number of clusters and a seed, and return the
cluster ``(n,)`` of each sample. Only their starts are random. Each keeps the start with the best value of its
own objective, so that nothing is chosen with ground truth. k-means with 5 starts, with 100 starts and in the
space of UMAP are a user's likely alternatives, so every table shows them.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize

from ucds.math.arrays import FloatArray
from ucds.math.consensus import Partition
from ucds.math.spaces import centre, principal_axes, unit_rows

NEIGHBOURS = 10


def kmeans(vectors: FloatArray, n_clusters: int, seed: int, *, starts: int = 5) -> Partition:
    """Cluster directions by k-means: the smallest sum of squares of several starts."""
    labels = KMeans(n_clusters, n_init=starts, random_state=seed).fit_predict(normalize(vectors))
    return np.asarray(labels, dtype=np.int64)


def spherical_kmeans(vectors: FloatArray, n_clusters: int, seed: int) -> Partition:
    """Cluster directions by k-means with unit centres: the largest sum of cosines of ten starts.

    Source:
        I. S. Dhillon and D. S. Modha, Concept decompositions for large sparse text data, 2001.
    """
    units = unit_rows(vectors)
    found = [_spherical(units, n_clusters, seed + start) for start in range(10)]
    return max(found, key=lambda one: one[0])[1]


def gaussian_mixture(vectors: FloatArray, n_clusters: int, seed: int) -> Partition:
    """Cluster directions by a mixture of Gaussians with diagonal covariances on 64 principal axes."""
    centred = centre(unit_rows(vectors))
    axes, _ = principal_axes(centred, 64)
    mixture = GaussianMixture(n_clusters, covariance_type="diag", n_init=5, reg_covar=1e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(mixture.fit_predict((centred @ axes).astype(np.float64)), dtype=np.int64)


def ward(vectors: FloatArray, n_clusters: int, seed: int) -> Partition:
    """Cluster directions agglomeratively by Ward's criterion; the seed plays no part."""
    return np.asarray(
        AgglomerativeClustering(n_clusters, linkage="ward").fit_predict(unit_rows(vectors)), dtype=np.int64
    )


def spectral(vectors: FloatArray, n_clusters: int, seed: int) -> Partition:
    """Cluster directions by the spectrum of the graph of their ten nearest neighbours."""
    clustering = SpectralClustering(
        n_clusters, affinity="nearest_neighbors", n_neighbors=min(NEIGHBOURS, len(vectors)), random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        return np.asarray(clustering.fit_predict(unit_rows(vectors)), dtype=np.int64)


def umap_kmeans(vectors: FloatArray, n_clusters: int, seed: int) -> Partition:
    """Cluster directions by k-means in the space that UMAP finds from their ten nearest neighbours.

    UMAP pulls neighbours together and pushes others apart, in 20 dimensions and without a minimum distance;
    of twenty starts of k-means there, the one with the best objective is kept.

    Source:
        L. McInnes, J. Healy and J. Melville, UMAP: Uniform manifold approximation and projection, 2018.
    """
    from umap import UMAP  # heavy, and an extra

    reducer = UMAP(
        n_neighbors=min(NEIGHBOURS, len(vectors) - 1),
        # Its spectral start needs fewer dimensions than samples.
        n_components=min(20, len(vectors) - 2),
        min_dist=0.0,
        metric="cosine",
        random_state=seed,
        n_jobs=1,  # equal seeds give equal spaces on one processor thread only
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Spectral initialisation failed", module="umap")
        space = reducer.fit_transform(unit_rows(vectors))
    labels = KMeans(n_clusters, n_init=20, random_state=seed).fit_predict(space)
    return np.asarray(labels, dtype=np.int64)


def _spherical(vectors: FloatArray, n_clusters: int, seed: int) -> tuple[float, Partition]:
    """Compute sum of cosines and clusters of one start; an empty cluster takes the sample that fits worst."""
    centres, _ = kmeans_plusplus(vectors, n_clusters, random_state=seed)
    labels = np.full(len(vectors), -1)
    for _ in range(300):  # at most
        cosines = vectors @ unit_rows(centres).T
        before, labels = labels, cosines.argmax(1)
        if np.array_equal(before, labels):
            break
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, vectors)
        worst = iter(cosines.max(1).argsort())
        for empty in np.setdiff1d(np.arange(n_clusters), labels):
            sums[empty] = vectors[next(worst)]
        centres = sums
    return float(cosines.max(1).sum()), labels.astype(np.int64)
