"""Open connections: how many one client may have, and which one makes room for another."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Generic, TypeVar

from ucds.serving.addresses import network_of

_Connection = TypeVar("_Connection")


class Places(Generic[_Connection]):
    """Places for connections; a client is an address, or a network of IPv6.

    Where there are too many connections, a new one is not refused, but of the client with the most of them,
    among those that have an idle one, the one that is idle for longest is closed: so a client that opens as
    many as it can shuts out nobody.

    Every call takes the same time, however many connections are open. The exception is a new connection
    beyond the total: to find the client with the most, it looks once at each client with an idle connection.

    Args:
        total: largest number of open connections.
        each: largest number of open connections of one client.
    """

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._clients: dict[_Connection, str] = {}
        self._counts: Counter[str] = Counter()
        self._idle: dict[str, dict[_Connection, int]] = {}  # connection to when it became idle, ascending
        self._moments = itertools.count()

    def enter(self, connection: _Connection, address: str) -> _Connection | None:
        """Take in a new connection, which is idle; return the one to close for it, which is taken out.

        Args:
            connection: new connection.
            address: address of its client.

        Returns:
            an idle connection, which is the new one if there is no other to close; ``None`` if there is room.
        """
        client = self._clients[connection] = network_of(address)
        self._counts[client] += 1
        self.rest(connection)
        if self._counts[client] > self._each:
            crowd = client
        elif len(self._clients) > self._total:
            crowd = max(self._idle, key=self._rank)
        else:
            return None
        closed = next(iter(self._idle[crowd]))
        self.leave(closed)
        return closed

    def rest(self, connection: _Connection) -> None:
        """Note that a connection is idle from now on, if it has a place."""
        self.work(connection)
        if connection in self._clients:
            self._idle.setdefault(self._clients[connection], {})[connection] = next(self._moments)

    def work(self, connection: _Connection) -> None:
        """Note that a connection is not idle any more, if it has a place."""
        client = self._clients.get(connection, "")
        idle = self._idle.get(client, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(client, None)

    def leave(self, connection: _Connection) -> None:
        """Take out a connection, if it has a place."""
        self.work(connection)
        client = self._clients.pop(connection, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def _rank(self, client: str) -> tuple[int, int]:
        """Return a value that is highest for the client that makes room next."""
        # Of clients with equally many connections, the one makes room that has been idle for longest. In a
        # flood from many addresses this is seldom an honest client, which asks now and then. If the newest
        # one made room instead, a flood that holds all places would keep everybody else out.
        return self._counts[client], -next(iter(self._idle[client].values()))
