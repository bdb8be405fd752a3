"""A bound on how fast one key may ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class RateLimiter:
    """One token bucket for each key, in samples; kept by this process, used on the event loop only.

    A request needs one token to be let in. Once its samples are counted, it pays for the others as well, and
    the bucket may go below zero. So the number of samples need not be known beforehand, and no request is
    too large for the bucket.

    Args:
        burst: seconds of its rate that a key may save up.
        clock: current time in seconds; tests give their own.
    """

    def __init__(self, burst: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._clock = burst, clock
        self._buckets: dict[int, tuple[float, float]] = {}

    def admit(self, key: int, rate: float | None) -> int | None:
        """Take a token, and return ``None``; without one, return the whole seconds until there is one.

        Args:
            key: number of the key.
            rate: samples a second; ``None`` without bound.
        """
        if rate is not None and (tokens := self._count_tokens(key, rate)) < 1:
            return max(1, math.ceil((1 - tokens) / rate))
        self.pay(key, rate, 1)
        return None

    def pay(self, key: int, rate: float | None, count: int) -> None:
        """Take tokens, whether they are there or not."""
        if rate is not None:
            self._buckets[key] = (self._count_tokens(key, rate) - count, self._clock())

    def _count_tokens(self, key: int, rate: float) -> float:
        most = max(1.0, rate * self._burst)
        tokens, then = self._buckets.get(key, (most, self._clock()))
        return min(most, tokens + (self._clock() - then) * rate)
