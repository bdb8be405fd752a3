"""TLS handshakes, which are bounded in number and time like the connections that they lead to."""

from __future__ import annotations

import asyncio
import ssl

from uvicorn.protocols.utils import get_remote_addr

from ucds.serving.protocol import PatientProtocol


class Handshake(asyncio.Protocol):
    """A connection whose TLS handshake is under way; it has a place, and makes room, like any other.

    Where asyncio itself makes the handshakes, it holds any number of silent connections for a minute each
    before a protocol learns of them.

    Args:
        protocol: protocol that gets the connection after the handshake; its places are used.
        context: certificate and key.

    Attributes:
        transport: transport below TLS.
    """

    transport: asyncio.Transport

    def __init__(self, protocol: PatientProtocol, context: ssl.SSLContext) -> None:
        self._protocol, self._context = protocol, context
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and begin the handshake."""
        self.transport = transport
        self._work = asyncio.get_running_loop().create_task(self._shake_hands())
        address = get_remote_addr(transport)
        crowded = self._protocol.places.enter(self, address[0] if address else "")
        if crowded is not None:
            crowded.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Keep the first decrypted bytes, which come before the end of the handshake is known here."""
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the handshake up."""
        self._work.cancel()

    async def _shake_hands(self) -> None:
        loop, protocol = asyncio.get_running_loop(), self._protocol
        try:
            encrypted = await loop.start_tls(
                self.transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=protocol.header_seconds,
            )
        except OSError:  # the client is too slow, speaks no TLS, does not trust us, or has left
            return
        finally:
            protocol.places.leave(self)
        if encrypted is None:  # closed to make room
            return
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(bytes(self._early))
