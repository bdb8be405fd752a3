"""Tests of comparisons: against the paired t-test, by hand, and in what the intervals cover."""

import math

import numpy as np
import pytest
from scipy import stats

from ucds.reports.statistics import Interval, compare, over_seeds, over_tasks


def test_one_task_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(50, 3, 8), rng.normal(48, 3, 8)
    found = compare({"t": dict(enumerate(ours))}, {"t": dict(enumerate(theirs))})
    assert found is not None
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.difference == pytest.approx((ours - theirs).mean())
    assert (found.over_seeds.low, found.over_seeds.high) == pytest.approx((expected.low, expected.high))
    assert (found.tasks, found.pairs) == (1, 8)


def test_several_tasks_by_hand() -> None:
    # Means 2 and 5; variances 1 and 4 over 3 seeds: 1/3 and 4/3. Standard error of the mean of both:
    # sqrt(5/3) / 2. Degrees of freedom (5/3)^2 / ((1/3)^2 / 2 + (4/3)^2 / 2) = 50/17.
    differences = [np.array([1.0, 2.0, 3.0]), np.array([3.0, 5.0, 7.0])]
    found = over_seeds(differences)
    half = stats.t.ppf(0.975, 50 / 17) * math.sqrt(5 / 3) / 2
    assert (found.low, found.high) == pytest.approx((3.5 - half, 3.5 + half))


def test_without_variance_the_interval_is_the_mean() -> None:
    assert over_seeds([np.array([2.0, 2.0]), np.array([4.0, 4.0])]) == Interval(3.0, 3.0)


def test_two_tasks_without_variance_are_drawn_as_they_are() -> None:
    # Of two draws of two tasks a quarter each is (0, 0) and (1, 1): the whole range is in the interval.
    found = over_tasks([[np.array([0.0, 0.0])], [np.array([1.0, 1.0])]])
    assert found == Interval(0.0, 1.0)
    # And half of them are (0, 1): between the quartiles lies the middle only.
    narrow = over_tasks([[np.array([0.0, 0.0])], [np.array([1.0, 1.0])]], level=0.4)
    assert narrow == Interval(0.5, 0.5)


def test_many_equal_tasks_leave_the_variance_of_the_seeds() -> None:
    """With no spread between tasks the bootstrap's interval is the normal one of all their seeds."""
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, 40)
    values = (values - values.mean()) / values.std()
    found = over_tasks([[values]] * 25)
    half = 1.96 / math.sqrt(25 * 40)
    assert found.low == pytest.approx(-half, rel=0.06)
    assert found.high == pytest.approx(half, rel=0.06)


def test_tasks_of_one_group_are_drawn_together() -> None:
    # Of two draws: twice the first group, mean 0; twice the second, (1 + 4) / 2; one of each, 5 / 3.
    groups = [[np.array([0.0, 0.0])], [np.array([1.0, 1.0]), np.array([4.0, 4.0])]]
    assert over_tasks(groups) == Interval(0.0, 2.5)
    narrow = over_tasks(groups, level=0.4)
    assert (narrow.low, narrow.high) == pytest.approx((5 / 3, 5 / 3))


def test_groups_change_the_interval_over_tasks_alone() -> None:
    ours = {"a": {0: 1.0, 1: 2.0}, "b": {0: 5.0, 1: 5.0}, "c": {0: 6.0, 1: 5.0}}
    theirs = {task: dict.fromkeys(runs, 0.0) for task, runs in ours.items()}
    apart, together = compare(ours, theirs), compare(ours, theirs, group=lambda task: task == "a")
    assert compare(ours, theirs) == apart  # whose intervals are drawn
    assert apart is not None
    assert together is not None
    assert apart.difference == together.difference == 4.0
    assert apart.over_seeds == together.over_seeds
    assert (apart.groups, together.groups) == (3, 2)
    assert together.over_tasks.high - together.over_tasks.low > apart.over_tasks.high - apart.over_tasks.low


def test_only_common_runs_are_compared() -> None:
    ours = {"a": {0: 5.0, 1: 7.0, 2: 100.0}, "b": {0: 1.0}, "c": {0: 9.0}}
    theirs = {"a": {0: 4.0, 1: 5.0, 3: -100.0}, "b": {1: 1.0}, "d": {0: 9.0}}
    found = compare(ours, theirs)
    assert found is not None
    assert (found.difference, found.tasks, found.pairs) == (1.5, 1, 2)
    assert compare({"a": {0: 1.0}}, {"a": {1: 1.0}}) is None
    assert compare({}, {}) is None


def test_too_few_runs_leave_the_interval_open() -> None:
    found = compare({"a": {0: 3.0}}, {"a": {0: 1.0}})
    assert found is not None
    assert found.difference == 2.0
    assert found.over_seeds == found.over_tasks == Interval(-math.inf, math.inf)
