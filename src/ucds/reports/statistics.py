"""Compares two methods by pairs of runs on the same task with the same seed.

A hundred seeds on one task say nothing of the next task. So there are two intervals for a mean difference:
one for the same tasks with other seeds, the other for other tasks of the same kind with other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FloatArray = NDArray[np.float64]
Runs = Mapping[Any, Mapping[int, float]]
"""A number by task, and within the task by seed."""

DRAWS = 10_000


@dataclass(frozen=True)
class Interval:
    """A confidence interval; infinite where there are too few runs to tell."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The difference between two methods, first minus second.

    Attributes:
        difference: mean over tasks of the mean difference over seeds.
        over_seeds: interval for the same tasks with other seeds.
        over_tasks: interval for other tasks with other seeds.
        tasks: number of tasks.
        pairs: number of pairs of runs, over all tasks.
    """

    difference: float
    over_seeds: Interval
    over_tasks: Interval
    tasks: int
    pairs: int


def compare(ours: Runs, theirs: Runs, *, level: float = 0.95) -> Comparison | None:
    """Compare two methods over the tasks and seeds that both have.

    Args:
        ours: numbers of the first method.
        theirs: numbers of the second method.
        level: confidence level of the intervals.

    Returns:
        The comparison; ``None`` if the methods have no run in common.
    """
    differences = [
        np.array([mine[seed] - theirs[task][seed] for seed in sorted(mine.keys() & theirs[task].keys())])
        for task, mine in ours.items()
        if task in theirs
    ]
    differences = [values for values in differences if len(values)]
    if not differences:
        return None
    return Comparison(
        float(np.mean([values.mean() for values in differences])),
        over_seeds(differences, level),
        over_tasks(differences, level),
        len(differences),
        sum(map(len, differences)),
    )


def best_of(options: Sequence[Runs]) -> dict[Any, dict[int, float]]:
    """Return the largest number of every run that all methods have: the choice of an oracle."""
    first, *others = options
    return {
        task: {
            seed: max(value, *(other[task][seed] for other in others))
            for seed, value in runs.items()
            if all(seed in other.get(task, {}) for other in others)
        }
        for task, runs in first.items()
    }


def over_seeds(differences: Sequence[FloatArray], level: float = 0.95) -> Interval:
    """Compute the interval of the mean difference for the same tasks with other seeds.

    Each task has a variance of its own; the degrees of freedom are Satterthwaite's. With one task this is
    the interval of the paired t-test.

    Args:
        differences: differences of each task by seed, ``(n_t,)``.
        level: confidence level.

    Source:
        F. E. Satterthwaite, An approximate distribution of estimates of variance components, 1946.
    """
    mean = float(np.mean([values.mean() for values in differences]))
    if any(len(values) < 2 for values in differences):
        return Interval(-math.inf, math.inf)
    parts = np.array([values.var(ddof=1) / len(values) for values in differences])
    total = parts.sum()
    if total == 0:
        return Interval(mean, mean)
    freedom = total**2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, differences, strict=True))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(total) / len(differences)
    return Interval(mean - half, mean + half)


def over_tasks(differences: Sequence[FloatArray], level: float = 0.95) -> Interval:
    """Compute the percentile interval of a two-level bootstrap: tasks are drawn, then seeds within each.

    With few tasks the interval is rough and rather too narrow; with one task it is infinite. The draws are
    the same at every call.

    Args:
        differences: differences of each task by seed, ``(n_t,)``.
        level: confidence level.

    Source:
        A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, 1997, section 3.8.
    """
    count = len(differences)
    if count < 2:
        return Interval(-math.inf, math.inf)
    rng = np.random.default_rng(0)
    drawn = rng.integers(count, size=(DRAWS, count))
    means = np.empty((DRAWS, count))
    for task, values in enumerate(differences):
        places = drawn == task
        means[places] = values[rng.integers(len(values), size=(places.sum(), len(values)))].mean(axis=1)
    low, high = np.quantile(means.mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
