"""A token bucket that counts samples."""

from __future__ import annotations

from ucds.labels.wire import Budget
from ucds.serving.rate import RateLimiter, limit_headers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_saves_up_spends_and_pays_its_debt() -> None:
    clock = Clock()
    limiter = RateLimiter(clock)
    assert limiter.admit(1, 2.0) is None  # 20 saved, 1 spent
    limiter.pay(1, 2.0, 39)  # 20 in debt
    assert limiter.admit(1, 2.0) == 11  # 21 tokens at 2 a second
    assert limiter.admit(2, 2.0) is None
    clock.now = 10.4
    assert limiter.admit(1, 2.0) == 1
    clock.now = 10.6
    assert limiter.admit(1, 2.0) is None
    clock.now = 1e6
    for _ in range(20):
        assert limiter.admit(1, 2.0) is None  # never more than the burst
    assert limiter.admit(1, 2.0) == 1


def test_headers_name_budget_and_rate() -> None:
    budget = Budget(limit=5000, used=2, remaining=4998)
    assert limit_headers(budget, None, None) == {
        "RateLimit-Policy": '"budget";q=5000',
        "RateLimit": '"budget";r=4998',
    }
    assert limit_headers(budget, 2.5, 7.9)["RateLimit"] == '"budget";r=4998, "rate";r=07;t=7'
    assert limit_headers(budget, 2.5, -30.0)["RateLimit"] == '"budget";r=4998, "rate";r=00;t=22'
    assert limit_headers(Budget(limit=None, used=0, remaining=None), None, None) == {}
