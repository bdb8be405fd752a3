"""Heads: from the features of an encoder to bottleneck features, logits and probabilities of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
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

    Attributes:
        weight: weights of the affine map, ``(d_f, width)``.
        bias: its shift, ``(d_f,)``.
        prototypes: prototypes of the clusters as columns, ``(d_f, K)``.
        unit_features: whether the encoder's features are scaled to unit length first.
    """

    weight: FloatArray
    bias: FloatArray
    prototypes: FloatArray
    unit_features: bool = False

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

        Args:
            below: features of the encoder.
            means: ``(n, width)`` mean that is subtracted from each sample in place of the head's own, as in
                :meth:`recentred`; a row of NaN stands for the head's own mean.
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

        A head that was made from clusters subtracts a mean, as a part of its bias. Samples of a domain that
        is new to the head are compared better after their own mean is subtracted.

        Args:
            mean: ``(width,)`` mean of the encoder's features, after their normalisation.
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


@lru_cache(maxsize=1)
def _one_thread() -> Callable[..., AbstractContextManager[Any]]:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    limit: Callable[..., AbstractContextManager[Any]] = ThreadpoolController().limit
    return limit


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Multiply in one thread: several threads take longer for small matrices, and may round differently."""
    with _one_thread()(limits=1, user_api="blas"):
        yield


def _multiply(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Multiply ``(n, k)`` rows with a matrix ``(k, m)``, in blocks of one size."""
    product = np.empty((len(rows), matrix.shape[1]), np.float32)
    matrix = np.ascontiguousarray(matrix, np.float32)
    with one_blas_thread():
        for start in range(0, len(rows), _ROWS):
            block = rows[start : start + _ROWS]
            if len(block) < _ROWS:
                filled = np.zeros((_ROWS, rows.shape[1]), np.float32)
                filled[: len(block)] = block
                block = filled
            product[start : start + _ROWS] = (block @ matrix)[: len(product) - start]
    return product
