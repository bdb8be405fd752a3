"""What every request passes before the application: its id, its headers, and its line in the access log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from pathlib import Path
from queue import SimpleQueue

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ucds.errors import InputError, NoSpaceError
from ucds.serving.problems import Refusal

REQUEST_ID = "X-Request-ID"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")

_HOST = re.compile(r"[^][/:@\s]+|\[[0-9A-Fa-f:.]+\]")
_GOOD_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
logger = logging.getLogger("ucds.serving")
_access = logging.getLogger("ucds.serving.access")


class FrontDoor:
    """Gives each request an id, refuses what its headers forbid, and writes one line about it.

    The id is the client's own `X-Request-ID`, where it is of a usual form. It stands in the answer, in the
    log, and in the request's state as ``request_id``.

    Args:
        app: application behind it.
        hosts: names by which the service may be asked; any name if empty.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = ()) -> None:
        self._app, self._hosts = app, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers, begun, status = Headers(scope=scope), time.perf_counter(), 0
        shown = headers.get(REQUEST_ID, "")
        number = shown if _GOOD_ID.fullmatch(shown) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = number

        async def add_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer[REQUEST_ID], answer["Cache-Control"] = number, "no-store"
            await send(message)

        try:
            self._check(headers)
            await self._app(scope, receive, add_headers)
        except Refusal as refusal:
            scope["state"]["problem"] = refusal.kind
            await refusal.response()(scope, receive, add_headers)
        except asyncio.CancelledError:  # its time is over: the service stops
            if status:
                raise
            scope["state"]["problem"] = "stopping"
            stopping = Refusal("stopping", "The service is being stopped; come again.", retry_after=5)
            await stopping.response()(scope, receive, add_headers)
        except Exception as error:
            # The client does not see the trace: it could tell of the model or of another client.
            logger.error("fault while answering request %s", number, exc_info=error)
            if status:
                raise
            scope["state"]["problem"] = "fault"
            fault = Refusal("fault", "The service failed on this request; nothing was charged for it.")
            await fault.response()(scope, receive, add_headers)
        finally:
            _write_line(scope, status, time.perf_counter() - begun)
        return None

    def _check(self, headers: Headers) -> None:
        name = re.sub(r":\d*$", "", headers.get("host", "")).lower()
        if self._hosts and name not in self._hosts:
            raise Refusal("wrong-host", "Ask by the name that the provider gave you.")
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            detail = "Send the body as it is, without the header Content-Encoding."
            raise Refusal("wrong-type", detail, headers={"Accept-Encoding": "identity"})


def check_hosts(hosts: Iterable[str]) -> None:
    """Make sure that names can be compared with those in ``Host``, of which the port is left out.

    Raises:
        InputError: one of them is an address with a scheme or a port.
    """
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise InputError(
                f"{host!r} is no name of a service: leave out scheme and port, and write IPv6 as [::1]"
            )


def note_key(request: Request, name: str | None) -> None:
    """Keep the name of the key that a request showed, for the access log."""
    request.state.key_name = name


def _write_line(scope: Scope, status: int, seconds: float) -> None:
    if not _access.handlers:
        return
    state, client = scope["state"], scope["client"]
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": state["request_id"],
        "client": client[0] if client else None,
        "key": state.get("key_name"),
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "problem": state.get("problem"),
        "seconds": round(seconds, 4),
        "bytes": int(Headers(scope=scope).get("content-length", "0")[:18] or 0),
    }
    _access.info(json.dumps(line))


class _LogFile(WatchedFileHandler):
    """Writes lines to the end of a file; those that cannot be written are lost, which is said once."""

    _fails = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.reopenIfNeeded()
            if self.stream is None:  # it could not be opened again for the last line
                self.stream = self._open()
            self.stream.write(f"{self.format(record)}{self.terminator}")
            self.flush()
        except OSError as error:
            if not self._fails:
                logger.error("the access log cannot be written, its lines are lost: %s", error)
            self._fails = True
        else:
            self._fails = False


@contextmanager
def writing_access_log(place: str | Path | None) -> Iterator[None]:
    """Write one line of JSON for each request while the block runs.

    A thread does the writing: a slow disk holds up nobody. A file that is moved away is begun anew. Lines
    that cannot be written are lost, and the log of the service says so once.

    Args:
        place: file, to whose end is written; the standard error if ``"-"``; no log if ``None``.

    Raises:
        NoSpaceError: the file cannot be written.
    """
    if place is None:
        yield
        return
    try:
        file = logging.StreamHandler(sys.stderr) if place == "-" else _LogFile(place)
    except OSError as error:
        raise NoSpaceError(f"the access log {place} cannot be written ({error.strerror})") from None
    queue: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler, listener = QueueHandler(queue), QueueListener(queue, file)
    _access.setLevel(logging.INFO)
    _access.propagate = False
    _access.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        _access.removeHandler(handler)
        listener.stop()
        file.close()
