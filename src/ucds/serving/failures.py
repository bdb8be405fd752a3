"""Slows down those who show one wrong key after the other."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from ucds.serving.addresses import network_of

_FREE = 3  # failures of an address without a delay
_FORGOTTEN_SECONDS = 60.0
_MOST_ADDRESSES = 4096
_MOST_WAITING = 64


class FailureBrake:
    """Delays the answer to a failed authentication, longer after each failure of the same address.

    Only failures wait. A valid key of the same address, which may be that of a proxy, is never delayed.

    Args:
        longest: longest delay in seconds; 0 delays nothing.
        clock: current time in seconds; tests give their own.
    """

    def __init__(self, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest, self._clock = longest, clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._waiting = 0

    async def wait(self, host: str) -> bool:
        """Count a failure and wait; return ``False`` at once where too many wait already."""
        seconds = self.count(host)
        if seconds and self._waiting >= _MOST_WAITING:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._waiting -= 1
        return True

    def count(self, host: str) -> float:
        """Count a failure of an address, and return the delay in seconds that it earned."""
        network = network_of(host)
        failures, last = self._failures.pop(network, (0, 0.0))
        if self._clock() - last > _FORGOTTEN_SECONDS:
            failures = 0
        self._failures[network] = (failures + 1, self._clock())
        if len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)
        return 0.0 if failures < _FREE else min(self._longest, 0.125 * 2.0 ** min(failures - _FREE, 10))
