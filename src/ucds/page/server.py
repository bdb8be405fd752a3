"""The server of the page: it answers those who know its token, and nobody else."""

from __future__ import annotations

import json
import secrets
from asyncio import Lock
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
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

_WITH_BODY = ("/tell", "/preview", "/like", "/finish")
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself holds the rest of its policy
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_Work = Callable[[Mapping[str, Any], Callable[[str, int, int], None]], str]
_Read = Callable[[Mapping[str, Any]], Any]


def make_app(session: Session, token: str, finish: _Work, hosts: Sequence[str] = ()) -> Starlette:
    """Make the application of a review, which answers below ``/token/`` alone.

    Requests that read or change the review are answered one after another. Pictures and long work are
    answered beside them. Every address on the page is relative, so that a proxy may put a path before it. A
    browser's address may name one of the hosts, or this machine. What a person asks for, ``finish`` writes.
    """
    task, page, turn = Task(), render_page(session.fixed()["title"]), Lock()

    def tell(values: Mapping[str, Any]) -> Mapping[str, Any]:
        if values["number"] != session.review.recorded:
            raise HTTPException(409, "another window has changed the clusters meanwhile")
        session.tell(values["action"], values)
        return session.state()

    def begin(values: Mapping[str, Any]) -> Mapping[str, Any]:
        task.start(lambda watch: finish(values, watch))
        return task.state

    def picture(request: Request) -> Response:
        return Response(session.picture(**request.path_params), media_type="image/jpeg")

    one_by_one = {
        "/fixed": _reads(session.fixed),
        "/state": _reads(session.state),
        "/question": _reads(session.question),
        "/cuts": _reads(session.cuts),
        "/tell": tell,
        "/preview": lambda values: session.preview(values["action"], values),
        "/like": lambda values: session.like(values.get("rows"), values.get("picture")),
    }
    beside = {
        "/finish": begin,
        "/task": lambda _: task.state,
        "/suggest/{cluster:int}": lambda values: session.suggest(values["cluster"]),
        "/map": _reads(cache(session.map)),  # these take long, and never change
        "/about": _reads(cache(session.about)),
    }
    routes = [
        Route("/", lambda request: HTMLResponse(page)),
        Route("/picture/{row:int}/{side:int}", picture),
        *(_route(path, read, turn) for path, read in one_by_one.items()),
        *(_route(path, read, None) for path, read in beside.items()),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_make_guard(token, hosts))],
        exception_handlers=dict.fromkeys((UserError, ValueError, LookupError, TypeError), _refuse),
    )


def _reads(read: Callable[[], Any]) -> _Read:
    return lambda _: read()


def _route(path: str, read: _Read, turn: Lock | None) -> Route:
    """Make the route of a function of what a request says; a picture, which takes long, takes no turn."""

    async def answer(request: Request) -> Response:
        values = request.path_params if request.method == "GET" else await _read_values(request)
        async with nullcontext() if turn is None or "picture" in values else turn:
            return JSONResponse(await run_in_threadpool(read, values))

    return Route(path, answer, methods=["POST" if path in _WITH_BODY else "GET"])


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


async def _read_values(request: Request) -> Mapping[str, Any]:
    """Read what a request says, up to the bound of its body."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise InputError(f"the file is larger than {MOST_BYTES // 2**20} MiB: choose a smaller one")
    if request.headers.get("content-type") == "application/octet-stream":
        return {"picture": bytes(content)}
    return dict(json.loads(content))
