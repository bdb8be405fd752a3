"""Limits for one key, so that the others have the rest: bounds on what it holds, and a price for waste."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ucds.serving.problems import Refusal

_MOST_DEBT = 4  # times the allowance
_LONGEST_DELAY = 2.0
_SECONDS_PER_BYTE = 6e-9
"""Processor time that the service takes to receive and hash a byte; measured with files of 16 MiB."""
_SECONDS_PER_REFUSAL = 0.02


def cost_of_bytes(count: int) -> float:
    """Return the seconds that the service takes to receive and hash some bytes."""
    return count * _SECONDS_PER_BYTE


def cost_of_refusal(count: int) -> float:
    """Return the price in seconds of some wasted bytes, a little more than the service spent on them."""
    return _SECONDS_PER_REFUSAL + cost_of_bytes(count)


class Share:
    """An amount ``total`` that all keys share, of which one key may hold ``each``. For the event loop only.

    The bound shrinks with the free rest: if other keys hold half of the total, a key may hold half of its
    bound. So a few keys cannot take everything.
    """

    def __init__(self, total: int, each: int, what: str) -> None:
        self._total, self._each, self._what = total, each, what
        self._held: Counter[int] = Counter()

    @property
    def held(self) -> int:
        """Amount that all keys together hold."""
        return self._held.total()

    def held_by(self, key: int) -> int:
        """Return the amount that a key holds."""
        return self._held[key]

    def check(self, key: int, amount: int = 1) -> None:
        """Refuse an amount above the key's bound, or above what is left."""
        wanted = self._held[key] + amount
        if wanted > self._each:
            detail = f"You have as many {self._what} under way as one key may have; wait for their answers."
            raise Refusal("over-share", detail, retry_after=1)
        left = self._total - self.held + self._held[key]
        if wanted * self._total > self._each * left:
            detail = f"The service holds nearly all the {self._what} it can hold; try again later."
            raise Refusal("busy", detail, retry_after=1)

    @contextmanager
    def taking(self, key: int, amount: int) -> Iterator[None]:
        """Hold an amount for a key while the block runs, or refuse it."""
        self.check(key, amount)
        self._held[key] += amount
        try:
            yield
        finally:
            self._held[key] -= amount
            if not self._held[key]:
                del self._held[key]


class Waste:
    """Work that keys cause without paying for it: a key that wastes much is slowed, then refused.

    Unusable samples, requests that fail after their body began to arrive, repeats, and failed calibrations
    add seconds to the debt of a key. The debt shrinks by the allowance each minute. Above half of the
    allowance, requests have to wait; above the allowance, they are refused until the debt is down to half of
    it.
    """

    def __init__(
        self,
        allowance: float,
        told: Callable[[int], None] = lambda key: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowance, self._told, self._clock = allowance, told, clock
        self._debts: dict[int, tuple[float, float]] = {}
        self._refused: set[int] = set()

    def charge(self, key: int, seconds: float) -> None:
        """Add seconds to the debt of a key."""
        debt = min(_MOST_DEBT * self._allowance, self.debt(key) + seconds)
        self._debts[key] = (debt, self._clock())
        if debt > self._allowance and key not in self._refused:
            self._refused.add(key)
            self._told(key)

    def debt(self, key: int) -> float:
        """Return the debt of a key in seconds."""
        debt, then = self._debts.get(key, (0.0, 0.0))
        return max(0.0, debt - (self._clock() - then) * self._allowance / 60)

    def delay(self, key: int) -> float:
        """Return the seconds that the next request of a key has to wait; refuse a key with too much debt."""
        debt, half = self.debt(key), self._allowance / 2
        if debt <= half:
            self._refused.discard(key)
        if key in self._refused:
            detail = "Too much of what you sent could not be used, and it costs as much as labels; wait."
            seconds = math.ceil(60 * (debt - half) / self._allowance)
            raise Refusal("over-waste", detail, retry_after=max(1, seconds))
        return _LONGEST_DELAY * max(0.0, debt - half) / half
