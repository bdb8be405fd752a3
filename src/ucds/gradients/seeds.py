"""Derives the random numbers of training steps from the seed of a run, as :mod:`ucds.training.seeds` does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ucds.training.seeds import derive


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
