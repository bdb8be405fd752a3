"""Perceptual hashes of images: bits of which most stay when an image is mirrored, moved, compressed or noisy.

A bit is the sign of one coefficient of the cosine transform of the brightness. Mirroring an image changes the
signs of known coefficients and nothing else, so a hash also tells that of the mirrored image.

Source:
    C. Zauner, Implementation and benchmarking of perceptual image hash functions, 2010 (low frequencies of
    the cosine transform); that the mirrored image is compared too is ours.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

FREQUENCIES = 16
"""Frequencies in each direction, from the lowest."""

HASH_BYTES = FREQUENCIES**2 // 8
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)

Hashes = NDArray[np.uint8]
Signs = NDArray[np.float32]


def hash_images(images: NDArray[np.uint8]) -> Hashes:
    """Compute the perceptual hash of each image.

    Args:
        images: ``(n, 3, S, S)`` colour images, S at least `FREQUENCIES`.

    Returns:
        ``(n, HASH_BYTES)`` bits, eight to a byte. The bit of the mean brightness is always 0.
    """
    basis = _low_frequencies(images.shape[-1])
    signs = np.empty((len(images), FREQUENCIES, FREQUENCIES), dtype=bool)
    for image, found in zip(images, signs, strict=True):  # one by one: a batch as float32 takes much memory
        np.greater(basis @ np.tensordot(_LUMA, image, 1) @ basis.T, 0, out=found)
    signs[:, 0, 0] = False
    return np.packbits(signs.reshape(len(images), -1), axis=1)


def count_different_bits(hashes: Hashes, others: Hashes) -> NDArray[np.int64]:
    """Count the bits in which hashes differ from those of other images, or of these images mirrored.

    Args:
        hashes: ``(n, HASH_BYTES)`` hashes.
        others: ``(m, HASH_BYTES)`` hashes.

    Returns:
        ``(n, m)`` smaller of the two numbers.
    """
    ours, theirs = _as_signs(hashes), _as_signs(others)
    equal_less_different = np.maximum(ours @ theirs.T, ours * _mirror() @ theirs.T)
    return np.asarray((8 * HASH_BYTES - equal_less_different) // 2, dtype=np.int64)


def _as_signs(hashes: Hashes) -> Signs:
    return np.unpackbits(hashes, axis=1).astype(np.float32) * 2 - 1


@lru_cache
def _mirror() -> Signs:
    """Make the factors of the signs when an image is mirrored left to right: -1 for odd frequencies."""
    return np.tile(np.array([1, -1], dtype=np.float32), FREQUENCIES**2 // 2)


@lru_cache(maxsize=8)
def _low_frequencies(side: int) -> NDArray[np.float32]:
    return np.asarray(dct(np.eye(side, dtype=np.float32), axis=0, norm="ortho")[:FREQUENCIES])
