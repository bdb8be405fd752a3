"""Ends a connection so that its client can read the answer that was sent last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class GentleTransport:
    """A transport that is closed without a reset while its client is still sending.

    The system resets a connection that is closed with unread bytes, and the client may then lose an answer
    that it has not read. So the sending half is closed first, and what still arrives is thrown away.

    Args:
        transport: transport of the connection; what is not defined here is passed on to it.
        protocol: its protocol, which learns when the connection is lost.
        is_sending: whether the client may still be sending.
        seconds: longest time for which bytes are thrown away.
        most_bytes: most bytes that are thrown away.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
        is_sending: Callable[[], bool],
        seconds: float,
        most_bytes: int,
    ) -> None:
        self._transport, self._protocol, self._is_sending = transport, protocol, is_sending
        self._seconds, self._most_bytes = seconds, most_bytes
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or only throws away what arrives."""
        return self._lingers or self._transport.is_closing()

    def release(self) -> None:
        """Forget the protocol of a lost connection: then both are freed at once, without the collector."""
        self._protocol, self._is_sending = asyncio.Protocol(), lambda: False

    def close(self) -> None:
        """Close the connection once the client has read the answer, or has had time to."""
        if self.is_closing():
            return
        if not self._is_sending():
            self._transport.close()
            return
        self._lingers = True
        drain = _Drain(self._transport, self._protocol, self._seconds, self._most_bytes)
        self._transport.set_protocol(drain)
        self._transport.resume_reading()
        if self._transport.can_write_eof():  # not with TLS: there the answer's length tells its end
            self._transport.write_eof()


class _Drain(asyncio.Protocol):
    """Throws away what arrives, until the client closes the connection or a bound is reached."""

    def __init__(
        self, transport: asyncio.Transport, before: asyncio.Protocol, seconds: float, most_bytes: int
    ) -> None:
        self._transport, self._before, self._left = transport, before, most_bytes
        self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._before.connection_lost(exc)
