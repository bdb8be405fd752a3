"""Compares two methods by pairs of runs on the same task with the same seed.

A hundred seeds on one task say nothing about the next task. So there are two intervals for a mean difference:
one for the same tasks with other seeds, the other for other tasks of the same kind with other seeds. Tasks
that are not independent, such as photographs of the same objects by two cameras, count as one group.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ucds.math.arrays import DoubleArray

Runs = Mapping[Any, Mapping[int, float]]
"""A number by task, and within the task by seed."""

DRAWS = 10_000


class Interval(NamedTuple):
    """A confidence interval; infinite if there are too few runs."""

    low: float
    high: float


class Comparison(NamedTuple):
    """The difference between two methods, first minus second."""

    difference: float  # mean over tasks of the mean difference over seeds
    over_seeds: Interval  # for the same tasks with other seeds
    over_tasks: Interval  # for other tasks with other seeds
    tasks: int
    groups: int  # of tasks that are independent of each other
    pairs: int  # of runs, over all tasks


def compare(
    ours: Runs, theirs: Runs, *, group: Callable[[Any], Hashable] = lambda task: task
) -> Comparison | None:
    """Compare two methods over the tasks and seeds that both have, with intervals of 95 %.

    ``group`` returns the group of a task; without ``group``, every task is a group by itself. Methods that
    have no run in common cannot be compared.
    """
    by_group: dict[Hashable, list[DoubleArray]] = defaultdict(list)
    for task, mine in ours.items():
        common = sorted(mine.keys() & theirs.get(task, {}).keys())
        if common:
            by_group[group(task)].append(np.array([mine[seed] - theirs[task][seed] for seed in common]))
    if not by_group:
        return None
    differences = [values for tasks in by_group.values() for values in tasks]
    return Comparison(
        float(np.mean([values.mean() for values in differences])),
        over_seeds(differences),
        over_tasks(list(by_group.values())),
        len(differences),
        len(by_group),
        sum(map(len, differences)),
    )


def over_seeds(differences: Sequence[DoubleArray], level: float = 0.95) -> Interval:
    """Compute the interval of the mean difference for the same tasks, ``(n_t,)`` each, with other seeds.

    Each task has a variance of its own; the degrees of freedom are Satterthwaite's. With one task this is
    the interval of the paired t-test.

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


def over_tasks(groups: Sequence[Sequence[DoubleArray]], level: float = 0.95) -> Interval:
    """Compute the percentile interval of a bootstrap: groups of tasks are drawn, then seeds within each task.

    A group is drawn with all its tasks, and every task that is drawn counts alike in the mean. With few
    groups the interval is rough and rather too narrow; with one group it is infinite. The draws are the same
    at every call.

    Source:
        A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application, 1997, section 3.8.
    """
    count = len(groups)
    if count < 2:
        return Interval(-math.inf, math.inf)
    rng = np.random.default_rng(0)
    drawn = rng.integers(count, size=(DRAWS, count))
    sums = np.zeros((DRAWS, count))
    for number, tasks in enumerate(groups):
        places = drawn == number
        for values in tasks:
            sums[places] += values[rng.integers(len(values), size=(places.sum(), len(values)))].mean(axis=1)
    sizes = np.array([len(tasks) for tasks in groups])[drawn]
    low, high = np.quantile(sums.sum(1) / sizes.sum(1), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
