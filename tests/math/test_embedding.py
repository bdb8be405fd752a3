"""Tests of the embedding of neighbours: its graph, its descent, and UMAP beside it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from ucds.demo.digits import DIGITS
from ucds.math.arrays import FloatArray, IntArray
from ucds.math.embedding import embed, link_neighbours
from ucds.math.metrics import clustering_accuracy
from ucds.math.spaces import reduce_features, unit_rows
