"""What one client may take, so that others have the rest: bounds, fair turns, and a price for wasted work."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from ucds.serving.problems import Refusal

Owner = int | str
"""Who a request is counted for: the number of its key; without keys, the client's address, or its network."""

_Item = TypeVar("_Item")
_MOST_DEBT = 4  # times the allowance
_MOST_DEBTORS = 4096


class Share:
    """An amount of something that all share, with a bound for each owner; used on the event loop only.

    Args:
        total: amount that there is.
        each: amount that one owner may hold.
        what: the thing in words, for messages.
    """

    def __init__(self, total: int, each: int, what: str) -> None:
        self._total, self._each, self._what = total, each, what
        self._held: Counter[Owner] = Counter()

    @property
    def held(self) -> int:
        """Amount held by all together."""
        return self._held.total()

    @contextmanager
    def entry(self, owner: Owner) -> Iterator[Callable[[int], None]]:
        """Return a function that takes an amount for an owner; at the end all of it is given back.

        Raises:
            Refusal: the function was asked for more than the owner may have (429), or than is left (503).
        """
        taken = 0

        def take(amount: int) -> None:
            nonlocal taken
            if self.held + amount > self._total:
                raise Refusal(
                    "busy", f"The service holds all the {self._what} it can; come again.", retry_after=1
                )
            if self._held[owner] + amount > self._each:
                detail = f"You have as many {self._what} under way as one client may; wait for their answers."
                raise Refusal("over-share", detail, retry_after=1)
            self._held[owner] += amount
            taken += amount

        try:
            yield take
        finally:
            self._held[owner] -= taken
            if not self._held[owner]:
                del self._held[owner]


class Rotation(dict[Owner, deque[_Item]]):
    """Queues of several owners, who are served in rotation; owners with an empty queue are passed over."""

    def add(self, owner: Owner, item: _Item) -> None:
        """Put an item at the end of its owner's queue."""
        self.setdefault(owner, deque()).append(item)

    def turn(self, may: Callable[[Owner], bool] = lambda owner: True) -> tuple[Owner, deque[_Item]] | None:
        """Return the owner whose turn it is, with its queue, and put it behind the others.

        Args:
            may: whether an owner may be served now; all may by default.
        """
        for empty in [owner for owner, queue in self.items() if not queue]:
            del self[empty]
        for owner in self:
            if may(owner):
                queue = self[owner] = self.pop(owner)
                return owner, queue
        return None


class Turns:
    """Places at some work, given in rotation to those who wait; used on the event loop only.

    Args:
        places: number of places.
        each: places that one owner may hold.
    """

    def __init__(self, places: int, each: int) -> None:
        self._free, self._each = places, each
        self._held: Counter[Owner] = Counter()
        self._waiting: Rotation[asyncio.Future[None]] = Rotation()

    @asynccontextmanager
    async def turn(self, owner: Owner) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, place)
        self._give_places()
        try:
            await place
            yield
        finally:
            if place.done() and not place.cancelled():
                self._held[owner] -= 1
                if not self._held[owner]:
                    del self._held[owner]
                self._free += 1
                self._give_places()

    def _give_places(self) -> None:
        while self._free and (turn := self._waiting.turn(lambda owner: self._held[owner] < self._each)):
            owner, queue = turn
            place = queue.popleft()
            if not place.cancelled():
                place.set_result(None)
                self._held[owner] += 1
                self._free -= 1


class Price:
    """The price of work that comes to nothing: an owner that causes much of it is slowed, then refused.

    Every image that cannot be used is a debt of the seconds it took, and a little more. Debts shrink by the
    allowance in a minute. Over half of the allowance, requests wait before they are taken; over the allowance
    they are refused, until the debt is half of it again. Of more than 4,096 owners with debts, the one that
    came longest ago is forgiven, so that many addresses do not fill the memory.

    Args:
        allowance: seconds a minute.
        clock: current time in seconds; tests give their own.
    """

    fixed = 0.02
    longest_wait = 2.0

    def __init__(self, allowance: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowance, self._clock = allowance, clock
        self._debts: OrderedDict[Owner, tuple[float, float]] = OrderedDict()
        self._refused: set[Owner] = set()

    def charge(self, owner: Owner, seconds: float) -> None:
        """Add the cost of one image that cannot be used."""
        debt = min(_MOST_DEBT * self._allowance, self._debt(owner) + seconds + self.fixed)
        self._debts[owner] = (debt, self._clock())
        if debt > self._allowance:
            self._refused.add(owner)
        if len(self._debts) > _MOST_DEBTORS:
            forgiven, _ = self._debts.popitem(last=False)
            self._refused.discard(forgiven)

    def owes(self, owner: Owner) -> bool:
        """Return whether an owner caused work that came to nothing, and has not made up for it yet."""
        return self._debt(owner) > 0

    def exhausted(self, owner: Owner) -> bool:
        """Return whether an owner has used up its allowance."""
        return owner in self._refused

    def wait(self, owner: Owner) -> float:
        """Return the seconds that the owner's next request has to wait.

        Raises:
            Refusal: the owner is refused for a while (429).
        """
        debt, half = self._debt(owner), self._allowance / 2
        if debt <= half:
            self._refused.discard(owner)
        if owner in self._refused:
            seconds = math.ceil(60 * (debt - half) / self._allowance)
            detail = "Too many of your images could not be used, which costs as much as labels; wait."
            raise Refusal("over-waste", detail, retry_after=max(1, seconds))
        return self.longest_wait * max(0.0, debt - half) / half

    def _debt(self, owner: Owner) -> float:
        debt, then = self._debts.pop(owner, (0.0, 0.0))
        debt -= (self._clock() - then) * self._allowance / 60
        if debt <= 0:
            self._refused.discard(owner)
            return 0.0
        self._debts[owner] = (debt, self._clock())
        return debt
