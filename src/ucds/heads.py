"""Heads: from the features of an encoder to bottleneck features, logits and probabilities of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ucds.files import digest_of
from ucds.math.arrays import DoubleArray, FloatArray

_ROWS = 64  # of every product, the last one filled up: so a row comes out the same, whatever the others are
_SMALLEST = 1e-12  # length of a vector that has a direction


@dataclass(frozen=True, eq=False)
class Head:
    """The layers of a model above its encoder, as arrays: an affine map, and one prototype per cluster.

    Features of equal samples are equal to the bit, however many samples are computed together.
    """

    weight: FloatArray  # (d_f, width) of the affine map
    bias: FloatArray  # (d_f,) its shift
    prototypes: FloatArray  # (d_f, K), one column a cluster
    unit_features: bool = False  # whether the encoder's features are brought to unit length first

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return int(self.prototypes.shape[1])

    @property
    def bottleneck_width(self) -> int:
        """Width of the bottleneck features, d_f."""
        return len(self.weight)

    @property
    def width(self) -> int:
        """Width of the encoder's features."""
        return int(self.weight.shape[1])

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any prototype, and so with what a cluster means."""
        return digest_of(np.ascontiguousarray(self.prototypes).tobytes())[:12]

    def features(self, below: FloatArray, means: FloatArray | None = None) -> FloatArray:
        """Compute bottleneck features ``(n, d_f)`` of the encoder's features ``(n, width)``.

        Each sample is seen from its row of the ``(n, width)`` means, as in :meth:`recentred`. A row of NaN
        stands for the head's own mean, and so does ``None`` for all.
        """
        if self.unit_features:
            lengths = np.sqrt(np.einsum("nd,nd->n", below, below))[:, None]
            below = below / np.maximum(lengths, np.float32(_SMALLEST))
        bias = self.bias
        if means is not None:
            seen = -_multiply(means, self.weight.T)
            bias = np.where(np.isnan(means).any(1, keepdims=True), self.bias, seen)
        return _multiply(below, self.weight.T) + bias

    def logits(self, features: FloatArray) -> FloatArray:
        """Compute the inner products ``(n, K)`` of bottleneck features and prototypes."""
        return _multiply(features, self.prototypes)

    def probabilities(self, features: FloatArray) -> FloatArray:
        """Compute the probability of each cluster, ``(n, K)``, from bottleneck features."""
        return softmax(self.logits(features))

    def recentred(self, mean: FloatArray) -> Head:
        """Return a head that subtracts another mean from the samples.

        A head that was made of clusters subtracts a mean, which is a part of its bias. Samples of a domain
        that it has not seen are compared better from their own ``(width,)`` mean, of normalised features.
        """
        return replace(self, bias=-_multiply(mean[None], self.weight.T)[0])


def softmax(logits: FloatArray) -> FloatArray:
    """Compute the softmax of each row of ``(n, K)`` logits."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares: FloatArray = powers / powers.sum(1, keepdims=True)
    return shares


def mean_direction(blocks: Iterator[FloatArray] | list[FloatArray]) -> FloatArray:
    """Compute the mean ``(width,)`` of features scaled to unit length, in double precision.

    The features ``(n, width)`` come in blocks; one block is in memory at a time.
    """
    total, count = np.zeros(()), 0
    for block in blocks:
        rows: DoubleArray = block.astype(np.float64)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _SMALLEST)
        total, count = total + rows.sum(0), count + len(rows)
    return np.asarray(total / count, np.float32)


@cache
def _libraries() -> Any:
    """Return what bounds the threads of libraries; to find these takes longer than a product."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def _multiply(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Multiply ``(n, k)`` rows with a matrix ``(k, m)``, in blocks of one size."""
    product = np.empty((len(rows), matrix.shape[1]), np.float32)
    matrix = np.ascontiguousarray(matrix, np.float32)
    # Several threads take longer for small matrices, and may round otherwise.
    with _libraries().limit(limits=1, user_api="blas"):
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            if len(block) < _ROWS:
                filled = np.zeros((_ROWS, rows.shape[1]), np.float32)
                filled[: len(block)] = block
                block = filled
            product[start : start + _ROWS] = (block @ matrix)[: len(product) - start]
    return product
