"""HTTP/1.1 on one connection, with bounds on what clients can hold by silence, numbers or long headers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ucds.serving.closing import GentleTransport
from ucds.serving.places import Places
from ucds.serving.problems import Refusal

_END_OF_HEADERS = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:", re.IGNORECASE)
_CHUNKED = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_NOT_HTTP = "The request is not valid HTTP/1.1, or its headers are too long."
_TWO_LENGTHS = "The request gives its length in two ways; send Content-Length alone."
_NO_LENGTH = "Send the request's length in the header Content-Length, and not in chunks."


class _HeadRefusedError(h11.RemoteProtocolError):
    """Headers that are refused although they are HTTP."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(kind, detail, headers={"Connection": "close"})


class _Connection(h11.Connection):
    """A connection that looks at the headers of a request before they are parsed.

    h11 bounds the length of headers only while they are incomplete, and takes a second for a hundred
    thousand chunks of a byte each, during which nobody else is answered. So chunks are refused.
    """

    refused: _HeadRefusedError | None = None

    def __init__(self, most_bytes: int) -> None:
        super().__init__(h11.SERVER, most_bytes)
        self._most_bytes = most_bytes

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            try:
                self._check_head(self.trailing_data[0])
            except _HeadRefusedError as error:
                self.refused = error
                raise
        return super().next_event()

    def _check_head(self, data: bytes) -> None:
        end = _END_OF_HEADERS.search(data, 0, self._most_bytes)
        if end is None:
            if len(data) > self._most_bytes:
                raise _HeadRefusedError("bad-request", _NOT_HTTP)
            return
        if _CHUNKED.search(data, 0, end.end()):
            both = _LENGTH.search(data, 0, end.end())
            raise _HeadRefusedError(*("bad-request", _TWO_LENGTHS) if both else ("no-length", _NO_LENGTH))


class Connection(Protocol):
    """What has a place among the connections.

    Attributes:
        transport: its transport, by which it is closed.
    """

    transport: asyncio.Transport


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with bounds on the number of connections and on the time that each may be silent.

    Attributes:
        places: places for the connections of all instances.
        header_seconds: time from the opening of a connection, or from the first byte of a further request,
            until the headers are complete.
        unread_seconds: time for a client to read on, once what it was sent fills all buffers.
        linger_seconds: time for a client that is still sending to notice that it was refused.
        linger_bytes: bytes that it may still send on a connection that is to be closed.
    """

    places: Places[Connection]
    header_seconds = 10.0
    unread_seconds = 10.0
    linger_seconds = 5.0
    linger_bytes = 64 * 2**20

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = self._heads = _Connection(self.config.h11_max_incomplete_event_size or 16 * 1024)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def idle(self) -> bool:
        """Whether no answer is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and start to wait for headers."""
        self.gentle = GentleTransport(
            transport, self, self._is_sending, self.linger_seconds, self.linger_bytes
        )
        super().connection_made(self.gentle)  # type: ignore[arg-type]
        self._expect_headers()
        crowded = self.places.enter(self, self.client[0] if self.client else "")
        if crowded is not None:
            crowded.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Start to wait for headers at the first byte of a request; stop when they are complete."""
        super().data_received(data)
        if not self.idle:
            self.places.work(self)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timers("headers")
        elif self.conn.trailing_data[0]:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting."""
        self._stop_timers()
        self.places.leave(self)
        super().connection_lost(exc)
        self.gentle.release()

    def on_response_complete(self) -> None:
        """Receive the rest of a body that was refused, for a short time only."""
        unread = self.conn.their_state is h11.SEND_BODY
        self._stop_timers("headers", "body")
        self.places.rest(self)
        super().on_response_complete()  # it may begin with the next request
        if not self.idle:
            self.places.work(self)
        if unread and not self.transport.is_closing():
            self._timers["body"] = self.loop.call_later(self.linger_seconds, self._give_up_body)

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever: meanwhile the connection makes room for nobody."""
        super().pause_writing()
        self._timers["unread"] = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting: the client has read."""
        self._stop_timers("unread")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, or has headers that are not taken, with a problem document."""
        refused = self._heads.refused or _HeadRefusedError("bad-request", _NOT_HTTP)
        answer = refused.refusal.response()
        start = h11.Response(status_code=answer.status_code, headers=answer.raw_headers, reason=b"Refused")
        with contextlib.suppress(h11.LocalProtocolError):  # another answer is under way already
            for event in (start, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        """Close the connection when the service stops, unless it is being closed."""
        if not self.transport.is_closing():
            super().shutdown()

    def _is_sending(self) -> bool:
        if self.conn.our_state is h11.ERROR:  # a broken request during an answer, which is lost
            return False
        return self._heads.refused is not None or self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def _expect_headers(self) -> None:
        if "headers" not in self._timers:
            self._timers["headers"] = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _give_up_body(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()

    def _stop_timers(self, *names: str) -> None:
        for name in names or list(self._timers):
            if name in self._timers:
                self._timers.pop(name).cancel()
