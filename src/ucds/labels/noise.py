"""Noise that a client puts on its embeddings before they leave, so that the provider sees less of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ucds.errors import InputError
from ucds.math.arrays import FloatArray


@dataclass(frozen=True)
class Noise:
    """Gaussian noise on embeddings, a function of each embedding and the seed.

    Equal embeddings get equal noise. So a sample that is sent twice, in whatever order, shows the provider
    nothing new, and costs nothing; and the noise cannot be averaged away.

    Attributes:
        scale: expected length of the noise, as a multiple of the length of the embedding.
        seed: seed of the noise. Who knows it can check a guess of an embedding, and nothing else.

    Raises:
        InputError: the scale is negative or not finite.
    """

    scale: float
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a scale that is none."""
        if not 0 <= self.scale < float("inf"):
            raise InputError(f"the scale of the noise must be a number from 0 on, not {self.scale:g}")

    def add_to(self, row: FloatArray) -> FloatArray:
        """Return a ``(d,)`` float32 embedding with its noise."""
        if self.scale == 0:
            return row
        seed = hashlib.blake2b(row.tobytes(), digest_size=32, key=str(self.seed).encode()).digest()
        drawn = np.random.default_rng(np.frombuffer(seed, np.uint32)).standard_normal(len(row))
        deviation = self.scale * float(np.linalg.norm(row)) / len(row) ** 0.5
        return np.asarray(row + deviation * drawn, dtype=np.float32)
