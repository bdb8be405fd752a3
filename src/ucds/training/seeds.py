"""Derives every random number of a run from its seed and the name of its purpose.

Equal seeds and names give equal numbers, so a resumed run draws the same numbers as an uninterrupted one.
(The order of samples is a function of the seed too: see :mod:`ucds.data.batches`.)
"""

from __future__ import annotations

import zlib

import numpy as np


def derive(seed: int, *names: str | int) -> np.random.SeedSequence:
    """Derive the seed sequence of one purpose from the seed of a run.

    Words and numbers name the purpose, such as the name of a stage and the number of a step; zeros at the end
    make no difference.
    """
    return np.random.SeedSequence(
        [seed, *(zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names)]
    )


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Make NumPy's generator for one purpose; see :func:`derive`."""
    return np.random.default_rng(derive(seed, *names))
