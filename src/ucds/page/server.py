"""The server of the page: it answers those who know its token, and nobody else."""

from __future__ import annotations

import json
import secrets
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

    What changes the review runs in the event loop, so that one request follows another; what takes long runs
    beside it. Every address on the page is relative, so that a proxy may put a path before it.

    Args:
        session: the review.
        token: secret part of the path.
        finish: writes what a person asks for, and tells its progress to its second argument.
        hosts: names in the browser's address, beside those of this machine.
    """
    task, page = Task(), render_page(session.fixed()["title"])
    slow: dict[str, Any] = {}  # answers that take long, and never change

    def answer_with(read: Callable[[], Mapping[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return JSONResponse(read())

        return answer

    async def tell(request: Request) -> Response:
        values = await _read_json(request)
        if values["number"] != session.review.recorded:
            return JSONResponse({"error": "another window has changed the clusters meanwhile"}, 409)
        session.tell(values["action"], values)
        return JSONResponse(session.state())

    async def preview(request: Request) -> Response:
        values = await _read_json(request)
        return JSONResponse(session.preview(values["action"], values))

    async def like(request: Request) -> Response:
        if request.headers.get("content-type") == "application/octet-stream":
            content = await _read(request)
            return JSONResponse(await run_in_threadpool(session.like, None, content))
        return JSONResponse(session.like((await _read_json(request))["rows"]))

    async def begin(request: Request) -> Response:
        values = await _read_json(request)
        task.start(lambda watch: finish(values, watch))
        return JSONResponse(task.state)

    def suggest(request: Request) -> Response:
        return JSONResponse(session.suggest(request.path_params["cluster"]))

    def lasting(name: str) -> Response:
        if name not in slow:
            slow[name] = getattr(session, name)()
        return JSONResponse(slow[name])

    def picture(request: Request) -> Response:
        content = session.picture(request.path_params["row"], request.path_params["side"])
        return Response(content, media_type="image/jpeg")

    def refuse(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 507 if isinstance(error, NoSpaceError) else 400)

    read_only = (session.fixed, session.state, session.question, session.cuts)
    routes = [
        Route("/", lambda request: HTMLResponse(page)),
        *(Route(f"/{read.__name__}", answer_with(read)) for read in read_only),
        Route("/tell", tell, methods=["POST"]),
        Route("/preview", preview, methods=["POST"]),
        Route("/like", like, methods=["POST"]),
        Route("/finish", begin, methods=["POST"]),
        Route("/task", lambda request: JSONResponse(task.state)),
        Route("/suggest/{cluster:int}", suggest),
        Route("/map", lambda request: lasting("map")),
        Route("/about", lambda request: lasting("about")),
        Route("/picture/{row:int}/{side:int}", picture),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_make_guard(token, hosts))],
        exception_handlers=dict.fromkeys((UserError, ValueError, LookupError, TypeError), refuse),
    )


def _make_guard(token: str, hosts: Sequence[str]) -> DispatchFunction:
    """Make what refuses requests without the token, and those that other pages in the browser would make."""
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
    """Return the name in a request that is not known: of the host, or of the page that sends it; else ""."""
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
