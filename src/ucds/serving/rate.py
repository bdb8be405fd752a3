"""A bound on how fast one key may ask."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class RateLimiter:
    """One token bucket a key, in samples, kept by this process alone.

    A request needs one token to be let in; once its samples are counted, it pays for the others as
    well, into debt if need be. So nobody has to know beforehand how many samples a request holds,
    and no request is too large for the bucket.

    Args:
        burst: seconds of its rate that a key may save up.
        clock: seconds, for tests.
    """

    def __init__(self, burst: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._clock = burst, clock
        self._buckets: dict[int, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def admit(self, key: int, rate: float | None) -> int | None:
        """Take a token.

        Args:
            key: number of the key.
            rate: samples a second; ``None`` without bound.

        Returns:
            ``None`` if there was one, else the whole seconds until there will be.
        """
        if rate is None:
            return None
        with self._lock:
            tokens = self._tokens(key, rate)
            if tokens < 1:
                return max(1, math.ceil((1 - tokens) / rate))
            self._buckets[key] = (tokens - 1, self._clock())
            return None

    def pay(self, key: int, rate: float | None, count: int) -> None:
        """Take further tokens, whether they are there or not."""
        if rate is None or count <= 0:
            return
        with self._lock:
            self._buckets[key] = (self._tokens(key, rate) - count, self._clock())

    def _tokens(self, key: int, rate: float) -> float:
        most = max(1.0, rate * self._burst)
        tokens, then = self._buckets.get(key, (most, self._clock()))
        return min(most, tokens + (self._clock() - then) * rate)
