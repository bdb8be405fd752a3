"""Open connections: how many one address may have, and which one makes room for another."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

_Connection = TypeVar("_Connection")


class Places(Generic[_Connection]):
    """Places for connections. All of it takes the same time, however many are open.

    Where there are too many connections, a new one is not refused, but of the address with the most of them
    the one that is idle for longest is closed: so a client that opens as many as it can shuts out nobody.

    Args:
        total: largest number of open connections.
        each: largest number of open connections of one address.
    """

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._addresses: dict[_Connection, str] = {}
        self._counts: Counter[str] = Counter()
        self._idle: dict[str, dict[_Connection, None]] = {}  # in the order in which they became idle

    def enter(self, connection: _Connection, address: str) -> _Connection | None:
        """Take in a new connection, which is idle; return the one to close for it, which is taken out.

        Args:
            connection: new connection.
            address: address of its client.

        Returns:
            an idle connection; the new one, if no other of its crowd is idle; ``None`` if there is room.
        """
        self._addresses[connection] = address
        self._counts[address] += 1
        self.rest(connection)
        if self._counts[address] > self._each:
            crowd = address
        elif len(self._addresses) > self._total:
            crowd = max(self._counts, key=self._counts.__getitem__)
        else:
            return None
        closed = next(iter(self._idle.get(crowd, ())), connection)
        self.leave(closed)
        return closed

    def rest(self, connection: _Connection) -> None:
        """Note that a connection is idle from now on, if it has a place."""
        self.work(connection)
        if connection in self._addresses:
            self._idle.setdefault(self._addresses[connection], {})[connection] = None

    def work(self, connection: _Connection) -> None:
        """Note that a connection is not idle any more, if it has a place."""
        address = self._addresses.get(connection, "")
        idle = self._idle.get(address, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(address, None)

    def leave(self, connection: _Connection) -> None:
        """Take out a connection, if it has a place."""
        self.work(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]
