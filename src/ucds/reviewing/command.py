"""Reviews a run on a page of this machine, or by a file of answers, and writes the reviewed run.

The page is served to those alone who know its address.
"""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ucds.errors import InputError, NoSpaceError, UserError, shown
from ucds.files import lock, write_atomically
from ucds.received import open_received
from ucds.reports.page.findings import read_record
from ucds.reports.page.report import report
from ucds.reviewing.session import Session
from ucds.target.review import NAMES_FILE, Review, ReviewedRun
from ucds.training.options import Compute
from ucds.training.run_folder import RunFolder

ADDRESS_FILE, PAGE_FILE = ".review", ".review.html"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def review(
    run: str | Path,
    out: str | Path | None = None,
    *,
    answers: str | Path | None = None,
    images: str | Path | None = None,
    keep_clusters: bool = False,
    open_browser: bool = True,
    compute: Compute | None = None,
) -> ReviewedRun | None:
    """Ask a person about the clusters of a run, on a page of this machine; ``ucds review`` does the same.

    Args:
        run: folder of a finished target run.
        out: run folder to make at the end; the name of the run with "-reviewed" if ``None``.
        answers: file of answers that is taken over in place of a page; the reviewed run is then written.
        images: samples, if they have moved; for a run on a folder of features the folder of its images.
        keep_clusters: whether the number of clusters stays, see :class:`ucds.target.review.Review`.
        open_browser: whether the page opens in the browser; its address is said in any case.
        compute: device, cache of decoded images and reporter; the defaults if ``None``.

    Returns:
        The run that was written last; ``None`` if the review goes on later.

    Raises:
        InputError: the run cannot be reviewed, its review is open already, or the answers cannot be used.
        DamagedFileError: a file of the run, or of answers, cannot be read.
        NoSpaceError: the disk is full, or a folder is not writable.
    """
    run, compute, written = Path(run), compute or Compute(), None
    if out is not None:
        RunFolder(Path(out)).require_usable(None, resume=False)
    moved, pictures = read_record(run).split_places(None if images is None else Path(images))
    state = Review(run, keep_clusters=keep_clusters, images=moved, compute=compute)

    def finish() -> str:
        nonlocal written
        written = state.finish(out)
        names = written.path / NAMES_FILE
        named = names if names.exists() else None
        try:
            report(written.path, moved, names=named, pictures=pictures, compute=compute.silent())
        except UserError as error:
            return f"{written.sentence}; it has no report: {error}"
        return written.sentence

    if answers is not None:
        taken, missed = state.take(answers)
        if not taken:
            raise InputError(f"none of the answers in {answers} is about samples of {run}")
        if missed:
            compute.reporter.say(f"{missed} of {taken + missed} answers are about samples that are not here")
        finish()
        return written
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits 40 ms
    token, origin = secrets.token_urlsafe(24), f"http://127.0.0.1:{listener.getsockname()[1]}"
    address = f"{origin}/{token}/"
    with listener, _only_review_of(run, address):
        app = make_app(Session(state, moved, pictures, compute), origin, token, finish)
        compute.reporter.say(f"review of {run}: {address}")
        if open_browser:  # others see the command line of a browser, and not what is in this file
            webbrowser.open((run / PAGE_FILE).absolute().as_uri())
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listener])
    return written


def make_app(session: Session, origin: str, token: str, finish: Callable[[], str]) -> Starlette:
    """Make the application of a review, which answers below ``origin/token/`` alone.

    What changes the review runs in the event loop, so that one request follows another; pictures do not.
    """

    async def fixed(request: Request) -> Response:
        return JSONResponse(session.fixed())

    async def state(request: Request) -> Response:
        return JSONResponse(session.state())

    async def tell(request: Request) -> Response:
        values = await request.json()
        if values["action"] == "finish":
            return JSONResponse({"finished": finish()})
        if values["number"] != session.review.recorded:
            return JSONResponse({"error": "another window has answered meanwhile"}, 409)
        session.tell(values["action"], values)
        return JSONResponse(session.state())

    def picture(request: Request) -> Response:
        return Response(session.picture(request.path_params["row"]), media_type="image/jpeg")

    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuse requests with another host or origin, which pages of strangers in the browser would make."""
        host, sender = request.headers.get("host"), request.headers.get("origin", origin)
        given = request.scope["path"].removeprefix("/").partition("/")[0]
        known = secrets.compare_digest(given.encode(), token.encode())
        if f"http://{host}" != origin or sender != origin or not known:
            return Response("not found", 404)
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    def refuse(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 507 if isinstance(error, NoSpaceError) else 400)

    routes = [
        Route("/fixed", fixed),
        Route("/state", state),
        Route("/tell", tell, methods=["POST"]),
        Route("/picture/{row:int}", picture),
        Mount("/", StaticFiles(directory=Path(__file__).with_name("template"), html=True)),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=routes)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers=dict.fromkeys((UserError, ValueError, LookupError, TypeError), refuse),
    )


@contextmanager
def _only_review_of(run: Path, address: str) -> Iterator[None]:
    """Hold the review of a run; the address of the page is left where a second command finds it."""
    page = run / PAGE_FILE
    with open_received(run / ADDRESS_FILE, "r+b") as file:
        if not lock(file):
            other = shown(file.read(500).decode(errors="replace"))
            raise InputError(f"a review of {run} is open already: {other}")
        file.truncate(0)
        file.write(address.encode())
        file.flush()
        link = f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">'.encode()
        write_atomically(page, lambda file: file.write(link), is_private=True)
        try:
            yield
        finally:
            page.unlink(missing_ok=True)
