"""HTTP/1.1 on one connection, without patience for clients that hold it and send nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ucds.labels.wire import PROBLEM_TYPE, Problem
from ucds.serving.problems import TITLES, TYPE_PREFIX


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, with a bound on the time for headers and for the rest of a refused body.

    Attributes:
        header_seconds: from the opening of a connection, or the first byte of a further request,
            until the headers are complete.
        linger_seconds: for a client to notice that its body was refused before all of it was sent.
    """

    header_seconds = 10.0
    linger_seconds = 5.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headers_due: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._expect_headers()
        elif self.conn.their_state is not h11.IDLE:
            self._stop_timers(lingering=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stop_timers()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Take what is left of a body that was not read, but not for long."""
        unread = self.conn.their_state is h11.SEND_BODY
        self._stop_timers()
        super().on_response_complete()
        if unread and not self.transport.is_closing():
            self._lingering = self.loop.call_later(self.linger_seconds, self._give_up_body)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has headers too long, with a problem document."""
        status, title = TITLES["bad-request"]
        detail = "The request is not valid HTTP/1.1, or its headers are too long."
        problem = Problem(type=TYPE_PREFIX + "bad-request", title=title, status=status, detail=detail)
        body = json.dumps(problem.to_json()).encode()
        headers = [
            ("content-type", PROBLEM_TYPE),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            for event in (
                h11.Response(status_code=status, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # an answer is on its way already
        self.transport.close()

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _give_up_body(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()

    def _stop_timers(self, *, lingering: bool = True) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None
        if lingering and self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
