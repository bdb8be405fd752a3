"""Tests of judging a model without ground truth."""

import math

import numpy as np
import pytest

from ucds.training.results import Evaluation, assess, select


def evaluation(information: float = 1.0, active: int = 4, n_clusters: int = 4, n: int = 100) -> Evaluation:
    labels = np.arange(n) % active
    return Evaluation(1, labels, information, 0.0, active, n_clusters)


def test_figures_by_hand() -> None:
    found = assess(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], np.float32), 7)
    assert found.step == 7
    assert found.labels.tolist() == [0, 0]
    assert found.marginal_entropy == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert found.conditional_entropy == pytest.approx(math.log(2) / 2)
    assert (found.active_clusters, found.n_clusters) == (1, 3)
    assert found.information == found.marginal_entropy - found.conditional_entropy


@pytest.mark.parametrize(
    ("active", "n_clusters", "n", "words"),
    [
        (4, 4, 100, None),
        (1, 1, 3, None),
        (3, 4, 100, "1 of 4 clusters is empty"),
        (2, 4, 100, "2 of 4 clusters are empty"),  # exactly half is not collapsed
        (1, 4, 100, "collapsed: only 1 of 4"),
        (1, 3, 100, "collapsed: only 1 of 3"),
        (2, 3, 100, "1 of 3 clusters is empty"),
        (3, 10, 3, None),  # three samples fill three clusters at most
        (2, 10, 3, None),  # in so few samples a living cluster may well be empty
        (9, 10, 79, None),
        (9, 10, 80, "1 of 10 clusters is empty"),
        (1, 10, 3, "collapsed"),
    ],
)
def test_warnings(active: int, n_clusters: int, n: int, words: str | None) -> None:
    warning = evaluation(active=active, n_clusters=n_clusters, n=n).warning
    assert warning is None if words is None else warning is not None and words in warning


def test_the_latest_of_about_equals_is_selected() -> None:
    slack = 0.05 * math.log(4)
    assert select([evaluation(1.0)]) == 0
    assert select([evaluation(1.0), evaluation(1.0)]) == 1
    assert select([evaluation(1.0), evaluation(1.0 - 0.9 * slack)]) == 1
    assert select([evaluation(1.0), evaluation(1.0 - 1.1 * slack)]) == 0
    assert select([evaluation(0.2), evaluation(1.0), evaluation(0.5)]) == 1
    collapses_late = [evaluation(x) for x in (0.3, 0.9, 1.3, 1.35, 1.34, 0.0, 0.0)]
    assert select(collapses_late) == 4
