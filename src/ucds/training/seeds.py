"""Derives every random number of a run from its seed and the name of its purpose.

Equal seeds and names give equal numbers, so a resumed run draws the same numbers as an uninterrupted one.
(The order of samples is a function of the seed too: see :mod:`ucds.data.batches`.)
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import torch


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


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """Make PyTorch's generator, on the CPU, for one purpose; see :func:`derive`."""
    return _torch_generator(derive(seed, *names))


class StepSeeds(NamedTuple):
    """Random numbers of one training step.

    Attributes:
        augmentation: generator of the training views, alike in all processes.
        rng: generator of the step's other choices, alike in all processes.
        layers: seed of stochastic layers, such as dropout; each process adds its rank.
    """

    augmentation: torch.Generator
    rng: np.random.Generator
    layers: int


def step_seeds(seed: int, stage: str, step: int) -> StepSeeds:
    """Derive the random numbers of a step of a stage; steps are counted from 0."""
    augmentation, other, layers = derive(seed, stage, step).spawn(3)
    return StepSeeds(
        _torch_generator(augmentation), np.random.default_rng(other), int(layers.generate_state(1)[0])
    )


def _torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator().manual_seed(int(sequence.generate_state(1)[0]))
