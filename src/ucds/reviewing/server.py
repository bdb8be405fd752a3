"""Serves the page of a review on this machine alone, to those who know its address."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ucds.errors import InputError, NoSpaceError
from ucds.reviewing.session import Session, StaleError

ADDRESS_FILE = ".review"
_TEMPLATE = files("ucds.reviewing") / "template"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{}'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(session: Session, origin: str, token: str, finish: Callable[[], str]) -> Starlette:
    """Make the application of a review, which answers below ``origin/token/`` alone."""

    def page(request: Request, body: bytes) -> Response:
        nonce = secrets.token_urlsafe(16)
        page, script, style = (
            (_TEMPLATE / f"page.{kind}").read_text("utf-8") for kind in ("html", "js", "css")
        )
        fixed = json.dumps(session.fixed()).replace("<", "\\u003c")
        for name, value in {"NONCE": nonce, "STYLE": style, "FIXED": fixed, "SCRIPT": script}.items():
            page = page.replace("{{" + name + "}}", value)
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY.format(nonce)})

    def state(request: Request, body: bytes) -> Response:
        return JSONResponse(session.state())

    def tell(request: Request, body: bytes) -> Response:
        values = json.loads(body)
        if not isinstance(values, dict):
            raise InputError("a request is an object with an action and a number")
        if values.get("action") == "finish":
            return JSONResponse({"finished": session.hold(finish)})
        return JSONResponse(session.tell(int(values["number"]), str(values["action"]), values))

    def picture(request: Request, body: bytes) -> Response:
        return Response(session.picture(request.path_params["row"]), media_type="image/jpeg")

    def own(handle: Callable[[Request, bytes], Response]) -> Callable[[Request], Any]:
        """Refuse requests with another host or origin, which pages of strangers in the browser would make."""

        async def handled(request: Request) -> Response:
            host, sender = request.headers.get("host"), request.headers.get("origin", origin)
            known = secrets.compare_digest(request.path_params["token"].encode(), token.encode())
            if f"http://{host}" != origin or sender != origin or not known:
                return Response("not found", 404)
            try:
                response = await asyncio.to_thread(handle, request, await request.body())
            except (InputError, NoSpaceError, ValueError, KeyError, TypeError, IndexError) as error:
                refused = {StaleError: 409, NoSpaceError: 507}
                status = next((code for kind, code in refused.items() if isinstance(error, kind)), 400)
                response = JSONResponse({"error": str(error)}, status)
            response.headers.update(_HEADERS)
            return response

        return handled

    app = Starlette(
        routes=[
            Route("/{token}/", own(page)),
            Route("/{token}/state", own(state)),
            Route("/{token}/tell", own(tell), methods=["POST"]),
            Route("/{token}/picture/{row:int}", own(picture)),
        ]
    )
    app.router.redirect_slashes = False  # a wrong token gets one answer, whatever follows it
    return app


def serve_review(
    run: Path,
    open_session: Callable[[], Session],
    finish: Callable[[], str],
    *,
    open_browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve the page of a review until it is stopped; a second review of the run is refused at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    token, origin = secrets.token_urlsafe(24), f"http://127.0.0.1:{listener.getsockname()[1]}"
    address = f"{origin}/{token}/"
    with listener, _only_review_of(run, address):
        app = make_app(open_session(), origin, token, finish)
        say(f"review of {run}: {address}")
        if open_browser:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def _only_review_of(run: Path, address: str) -> Iterator[None]:
    """Hold the review of a run; the address of the page is left where a second command finds it."""
    handle = os.open(run / ADDRESS_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            known = os.read(handle, 1000).decode(errors="replace")
            raise InputError(f"a review of {run} is open already: {known}") from None
        os.ftruncate(handle, 0)
        os.write(handle, address.encode())
        yield
    finally:
        os.close(handle)
