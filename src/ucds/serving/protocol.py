"""HTTP/1.1 on one connection, with bounds on the time that a silent client can hold it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ucds.serving.problems import Refusal


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with a bound on the time for headers and for the rest of a refused body.

    Attributes:
        header_seconds: time from the opening of a connection, or from the first byte of a further request,
            until the headers are complete.
        linger_seconds: time for a client to notice that its body was refused before all of it was sent.
    """

    header_seconds = 10.0
    linger_seconds = 5.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for headers."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Start to wait for headers at the first byte of a request; stop when they are complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timers("headers")
        elif self.conn.trailing_data[0]:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting."""
        self._stop_timers()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Receive the rest of a body that was refused, for a short time only."""
        unread = self.conn.their_state is h11.SEND_BODY
        self._stop_timers()
        super().on_response_complete()
        if unread and not self.transport.is_closing():
            self._timers["body"] = self.loop.call_later(self.linger_seconds, self._give_up_body)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, or has headers too long, with a problem document."""
        detail = "The request is not valid HTTP/1.1, or its headers are too long."
        answer = Refusal("bad-request", detail, headers={"Connection": "close"}).response()
        start = h11.Response(
            status_code=answer.status_code, headers=answer.raw_headers, reason=b"Bad Request"
        )
        with contextlib.suppress(h11.LocalProtocolError):  # another answer is under way already
            for event in (start, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

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
