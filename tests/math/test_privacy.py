"""Tests of `ucds.math.privacy`: accounts against those of OpenDP and dp-accounting, and the exact value."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from ucds.math.privacy import epsilon_of, noise_scale, rho_of

# dp-accounting 0.6.0: PLDAccountant (intervals of 1e-4) of a GaussianDpEvent of this rho. It cannot be a
# dependency of the tests, because it needs an older version of attrs than other packages do.
PLD_ACCOUNTANT = [
    (0.01, 1e-5, 0.4969753890601919),
    (0.02, 1e-4, 0.6015650736676394),
    (0.1, 1e-5, 1.760057161496377),
    (0.5, 1e-5, 4.37717810002493),
    (1.0, 1e-6, 7.286080969711125),
]


def exact_epsilon(rho: float, delta: float) -> float:
    """Return epsilon of one Gaussian release (Balle and Wang, 2018), which no valid account is below."""
    shift = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        near, far = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
        return float(norm.cdf(near) - math.exp(epsilon + norm.logcdf(far)) - delta)

    return float(brentq(excess, 0, 1e3, xtol=1e-12))


@pytest.mark.parametrize(("rho", "delta", "pld"), PLD_ACCOUNTANT)
def test_epsilon_is_never_below_other_accounts_and_not_far_above(
    rho: float, delta: float, pld: float
) -> None:
    exact, ours = exact_epsilon(rho, delta), epsilon_of(rho, delta)
    assert pld == pytest.approx(exact, abs=1e-3)
    assert max(pld, exact) < ours < 1.15 * pld
    assert ours < rho + 2 * math.sqrt(rho * math.log(1 / delta))  # the simpler bound of Bun and Steinke


@pytest.mark.parametrize(("rho", "delta"), [(1e-4, 1e-5), (0.05, 1e-6), (0.5, 1e-5), (8.0, 1e-9)])
def test_epsilon_is_that_of_opendp(rho: float, delta: float) -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    vectors = opendp.vector_domain(opendp.atom_domain(T=float, nan=False))
    mechanism = opendp.m.make_gaussian(vectors, opendp.l2_distance(T=float), noise_scale(rho))
    assert mechanism.map(1.0) == pytest.approx(rho, rel=1e-12)
    theirs = opendp.c.make_zCDP_to_approxDP(mechanism).map(1.0).epsilon(delta)
    assert epsilon_of(rho, delta) == pytest.approx(theirs, abs=1e-6)


@given(st.floats(1e-3, 1e3), st.sampled_from([1e-300, 1e-9, 1e-5, 1e-3, 0.5]))
@example(1e-3, 1e-300)
@example(1e3, 0.5)
def test_the_budget_of_an_epsilon_is_used_up_and_not_exceeded(epsilon: float, delta: float) -> None:
    assert epsilon * (1 - 1e-6) <= epsilon_of(rho_of(epsilon, delta), delta) <= epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1e5])
def test_an_epsilon_beyond_the_accounts_is_an_error(epsilon: float) -> None:
    with pytest.raises(ValueError, match="different signs"):
        rho_of(epsilon, 1e-9)


def test_nothing_released_costs_nothing_and_no_bound_needs_no_noise() -> None:
    assert epsilon_of(0, 1e-5) == 0
    assert noise_scale(math.inf) == 0
    assert noise_scale(0.5) == 1
