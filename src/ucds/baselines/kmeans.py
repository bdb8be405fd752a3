"""K-means on frozen features of the target alone: the baseline that every table shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from ucds.data.samples import Samples


def frozen_kmeans(features: Samples, n_clusters: int, seed: int, *, restarts: int = 5) -> NDArray[np.int64]:
    """Cluster L2-normalised vectors by k-means, and keep the start with the best objective.

    Args:
        features: vectors ``(n, d)``.
        n_clusters: number of clusters, K.
        seed: seed of the random starts; equal seeds give equal starts.
        restarts: number of starts.

    Returns:
        ``(n,)`` cluster of each sample.
    """
    vectors = normalize(features.read(np.arange(len(features))).numpy())
    labels = KMeans(n_clusters, n_init=restarts, random_state=seed).fit_predict(vectors)
    return np.asarray(labels, dtype=np.int64)
