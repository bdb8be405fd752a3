"""What one key may take, so that others have the rest: bounds on what it holds, and a price for waste."""

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
"""Processor time in which the service itself receives and hashes a byte; measured with files of 16 MiB."""
_SECONDS_PER_REFUSAL = 0.02


def cost_of_bytes(count: int) -> float:
    """Return the seconds in which the service itself receives and hashes some bytes."""
    return count * _SECONDS_PER_BYTE


def cost_of_refusal(count: int) -> float:
    """Return the price in seconds of some bytes that came to nothing, a little more than they took."""
    return _SECONDS_PER_REFUSAL + cost_of_bytes(count)


class Share:
    """An amount ``total`` of something that all keys share; one may hold ``each``. For the event loop only.

    The bound shrinks with what the others leave: where they hold half of the total, a key may hold half of
    its bound. So a few keys cannot take everything.
    """

    def __init__(self, total: int, each: int, what: str) -> None:
        self._total, self._each, self._what = total, each, what
        self._held: Counter[int] = Counter()

    @property
    def held(self) -> int:
        """Amount held by all together."""
        return self._held.total()

    def held_by(self, key: int) -> int:
        """Return the amount that a key holds."""
        return self._held[key]

    def check(self, key: int, amount: int = 1) -> None:
        """Refuse a key more than it may have, or than is left."""
        wanted = self._held[key] + amount
        if wanted > self._each:
            detail = f"You have as many {self._what} under way as one key may; wait for their answers."
            raise Refusal("over-share", detail, retry_after=1)
        left = self._total - self.held + self._held[key]
        if wanted * self._total > self._each * left:
            detail = f"The service holds nearly all the {self._what} it can; come again."
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
    """Work that keys cause and do not pay for: a key that causes much of it is slowed, then refused.

    Samples that cannot be used, requests that fail after their body began to come, repeats, and
    calibrations that come to nothing are debts of seconds. Debts shrink by the allowance in a
    minute. Over half of the allowance, requests wait before they are taken; over the allowance they are
    refused, until the debt is half of it again.
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
        """Add a debt of a key."""
        debt = min(_MOST_DEBT * self._allowance, self.debt(key) + seconds)
        self._debts[key] = (debt, self._clock())
        if debt > self._allowance and key not in self._refused:
            self._refused.add(key)
            self._told(key)

    def debt(self, key: int) -> float:
        """Return the seconds that a key has not made up for yet."""
        debt, then = self._debts.get(key, (0.0, 0.0))
        return max(0.0, debt - (self._clock() - then) * self._allowance / 60)

    def delay(self, key: int) -> float:
        """Return the seconds that the next request of a key has to wait; refuse a key that wasted much."""
        debt, half = self.debt(key), self._allowance / 2
        if debt <= half:
            self._refused.discard(key)
        if key in self._refused:
            detail = "Too much of your work could not be used, which costs as much as labels; wait."
            seconds = math.ceil(60 * (debt - half) / self._allowance)
            raise Refusal("over-waste", detail, retry_after=max(1, seconds))
        return _LONGEST_DELAY * max(0.0, debt - half) / half
