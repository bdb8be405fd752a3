"""A token bucket that counts samples."""

from __future__ import annotations

from ucds.serving.rate import RateLimiter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_saves_up_spends_and_pays_its_debt() -> None:
    clock = Clock()
    limiter = RateLimiter(burst=10, clock=clock)
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


def test_no_rate_is_no_bound() -> None:
    limiter = RateLimiter(clock=Clock())
    assert all(limiter.admit(1, None) is None for _ in range(1000))
