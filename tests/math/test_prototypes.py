"""Prototypes of given assignments: those of logistic regression, a minimum, the same on any machine."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from ucds.math.prototypes import solve_prototypes

N, D, K = 90, 5, 3
NOWHERE = np.zeros((D, K))


def problem(seed: int = 0, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Features in double precision, and soft targets that they do not explain."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)), softmax(rng.random((n, K)), axis=1)


def test_prototypes_of_hard_targets_are_those_of_logistic_regression() -> None:
    features, _ = problem()
    truth, decay = np.arange(N) % K, 0.02
    found = solve_prototypes(features, np.eye(K)[truth], NOWHERE, decay=decay)
    known = LogisticRegression(C=1 / (decay * N), fit_intercept=False, tol=1e-9, max_iter=1000)
    np.testing.assert_allclose(found.T, known.fit(features, truth).coef_, atol=1e-4)


@pytest.mark.parametrize("n", [N, 9000])  # of which the latter come in several blocks
def test_the_gradient_at_the_solution_is_zero_whatever_the_start(n: int) -> None:
    features, targets = problem(1, n)
    decay, solutions = 0.01, []
    for seed in (0, 1):
        start = np.random.default_rng(seed).normal(size=(D, K))
        found = solve_prototypes(features, targets, start, decay=decay)
        slope = features.T @ (softmax(features @ found, axis=1) - targets) / n + decay * found
        assert np.abs(slope).max() < 1e-5
        solutions.append(found)
    np.testing.assert_allclose(*solutions, atol=1e-3)


def test_single_precision_finds_nearly_the_same_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(3)
    features, targets = rng.normal(size=(500, 96)), softmax(rng.random((500, 7)), axis=1)
    exact = solve_prototypes(features, targets, np.zeros((96, 7)), decay=0.01)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            given = (part.astype(np.float32) for part in (features, targets, np.zeros((96, 7))))
            found.append(solve_prototypes(*given, decay=0.01))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], exact, atol=1e-3)


def test_the_work_can_be_watched_and_ended() -> None:
    told: list[int] = []

    def watch(work: str, done: int, total: int) -> None:
        told.append(done)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_prototypes(*problem(), NOWHERE, watch=watch)
    assert told == [0, 1, 2, 3]
