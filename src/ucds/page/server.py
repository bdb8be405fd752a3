"""The server of the page: it answers those who know its token, and nobody else."""

from __future__ import annotations

import json
import secrets
from asyncio import Lock
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, DispatchFunction
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from ucds.errors import InputError, NoSpaceError, UserError, shown
from ucds.page.render import render_page
from ucds.page.session import Session, Task

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names under which a browser on this machine, or behind a forwarded port, asks for the page."""

MOST_BYTES = 64 * 2**20
"""Largest body of a request: a picture file that is dropped on the page."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself holds the rest of its policy
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_Work = Callable[[Mapping[str, Any], Callable[[str, int, int], None]], str]


def make_app(session: Session, token: str, finish: _Work, hosts: Sequence[str] = ()) -> Starlette:
    """Make the application of a review, which answers below ``/token/`` alone.

    Requests that read or change the review are answered one after another. Pictures and long work are
    answered beside them. Every address on the page is relative, so that a proxy may put a path before it. A
    browser's address may name one of the hosts, or this machine. What a person asks for, ``finish`` writes.
    """
    answers, page = _Answers(session, finish), render_page(session.fixed()["title"])
    read_only = (session.fixed, session.state, session.question, session.cuts)
    routes = [
        Route("/", lambda request: HTMLResponse(page)),
        *(Route(f"/{read.__name__}", answers.with_what(read)) for read in read_only),
        Route("/tell", answers.tell, methods=["POST"]),
        Route("/preview", answers.preview, methods=["POST"]),
        Route("/like", answers.like, methods=["POST"]),
        Route("/finish", answers.begin, methods=["POST"]),
        Route("/task", lambda request: JSONResponse(answers.task.state)),
        Route("/suggest/{cluster:int}", answers.suggest),
        Route("/map", lambda request: answers.lasting("map")),
        Route("/about", lambda request: answers.lasting("about")),
        Route("/picture/{row:int}/{side:int}", answers.picture),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_make_guard(token, hosts))],
        exception_handlers=dict.fromkeys((UserError, ValueError, LookupError, TypeError), _refuse),
    )


class _Answers:
    """Answers requests to a review, those that read or change it one after another."""

    def __init__(self, session: Session, finish: _Work) -> None:
        self._session, self._finish = session, finish
        self.task = Task()
        self._slow: dict[str, Any] = {}  # answers that take long, and never change
        self._one_by_one = Lock()

    async def _in_turn(self, read: Callable[[], Mapping[str, Any]]) -> Response:
        async with self._one_by_one:
            return JSONResponse(await run_in_threadpool(read))

    def with_what(self, read: Callable[[], Mapping[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that answers with the values that a function reads."""

        async def answer(request: Request) -> Response:
            return await self._in_turn(read)

        return answer

    async def tell(self, request: Request) -> Response:
        """Do an action, unless another window has done one that this one does not know."""
        values, session = await _read_json(request), self._session

        def change() -> Mapping[str, Any]:
            if values["number"] != session.review.recorded:
                return {"error": "another window has changed the clusters meanwhile"}
            session.tell(values["action"], values)
            return session.state()

        async with self._one_by_one:
            said = await run_in_threadpool(change)
        return JSONResponse(said, 409 if "error" in said else 200)

    async def preview(self, request: Request) -> Response:
        """Show what an action would do."""
        values = await _read_json(request)
        return await self._in_turn(lambda: self._session.preview(values["action"], values))

    async def like(self, request: Request) -> Response:
        """Find samples that are like others, or like a picture that is sent."""
        if request.headers.get("content-type") == "application/octet-stream":
            content = await _read(request)
            return JSONResponse(await run_in_threadpool(self._session.like, None, content))
        rows = (await _read_json(request))["rows"]
        return await self._in_turn(lambda: self._session.like(rows))

    async def begin(self, request: Request) -> Response:
        """Start to write what a person asks for."""
        values = await _read_json(request)
        self.task.start(lambda watch: self._finish(values, watch))
        return JSONResponse(self.task.state)

    def suggest(self, request: Request) -> Response:
        """Suggest names of a cluster."""
        return JSONResponse(self._session.suggest(request.path_params["cluster"]))

    def lasting(self, name: str) -> Response:
        """Answer with what the session computes once."""
        if name not in self._slow:
            self._slow[name] = getattr(self._session, name)()
        return JSONResponse(self._slow[name])

    def picture(self, request: Request) -> Response:
        """Answer with a sample's picture."""
        content = self._session.picture(request.path_params["row"], request.path_params["side"])
        return Response(content, media_type="image/jpeg")


def _refuse(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 507 if isinstance(error, NoSpaceError) else 400)


def _make_guard(token: str, hosts: Sequence[str]) -> DispatchFunction:
    """Make the guard that refuses requests without the token, and requests by other pages in the browser."""
    known = LOOPBACK | {host.lower() for host in hosts}

    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.scope["path"].removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(given.encode(), token.encode()):
            return PlainTextResponse("not found", 404)
        stranger = _strangers(request.headers.get("host", ""), request.headers.get("origin"), known)
        if stranger:
            name = shown(stranger, 200)
            said = f"This review does not know the address {name}: start it again with {name} as its host"
            return PlainTextResponse(said + "\n", 403)
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    return guard


def _strangers(host: str, sender: str | None, known: frozenset[str]) -> str:
    """Return the unknown name in a request, of the host or of the page that sends it; "" if there is none."""
    name = urlsplit(f"//{host}").hostname or ""
    if name not in known:
        return name or "of no name"
    if sender is None or urlsplit(sender).netloc == host:
        return ""
    other = urlsplit(sender).hostname or "of no name"
    return "" if other in known - LOOPBACK else other


async def _read(request: Request) -> bytes:
    """Read the body of a request, up to its bound."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise InputError(f"the file is larger than {MOST_BYTES // 2**20} MiB: choose a smaller one")
    return bytes(content)


async def _read_json(request: Request) -> Mapping[str, Any]:
    return dict(json.loads(await _read(request)))
