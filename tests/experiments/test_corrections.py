"""Tests of the simulated person who answers the questions of a report."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.config import ConsensusSettings
from ucds.experiments.corrections import answer, try_answers
from ucds.math.constraints import Pair


def test_a_group_counts_as_the_class_that_most_of_it_has() -> None:
    classes = np.array([0, 0, 1, 1, 1, 2])
    cats, dogs, mixed = np.array([0, 1]), np.array([2, 3]), np.array([0, 3, 4])
    found = answer([(cats, dogs), (dogs, mixed), (cats, cats)], classes)

    def listed(pairs: tuple[Pair, ...]) -> list[list[list[int]]]:
        return [[one.tolist(), other.tolist()] for one, other in pairs]

    assert listed(found.together) == [[[2, 3], [0, 3, 4]], [[0, 1], [0, 1]]]
    assert listed(found.apart) == [[[0, 1], [2, 3]]]


@pytest.mark.filterwarnings("ignore:stage .* clusters? (is|are) empty:ucds.errors.UcdsWarning")
def test_answers_mend_a_class_that_is_split_and_two_that_are_one() -> None:
    """Class 0 lies in two places, and classes 1 and 2 lie so near each other that they are one cluster."""
    rng, n = np.random.default_rng(0), 40
    centres = 8 * np.eye(6)[[0, 1, 2, 2, 3]] + np.array([0, 0, 0, 2.0, 0])[:, None] * np.eye(6)[5]
    vectors = (centres.repeat(n, 0) + 0.4 * rng.normal(size=(5 * n, 6))).astype(np.float32)
    classes = np.array([0, 0, 1, 2, 3]).repeat(n)
    trial = try_answers(vectors, classes, 4, 0, ConsensusSettings(starts=3))
    assert trial.before == pytest.approx(0.6)
    assert trial.after == pytest.approx(1.0)
    assert trial.gain == pytest.approx(40.0)
    assert trial.same >= 1
    assert trial.different >= 1
