"""The port for those who watch the service: whether it lives, and whether it can answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ucds.serving.problems import install_handlers

ALIVE, READY = "ok\n", "ready\n"


def create_health_app(check_ready: Callable[[], Awaitable[None]]) -> Starlette:
    """Build an application that answers ``/healthz`` and ``/readyz``, by whatever name it is asked.

    Args:
        check_ready: raises a refusal while the service cannot answer.
    """

    async def healthz(request: Request) -> PlainTextResponse:
        return PlainTextResponse(ALIVE)

    async def readyz(request: Request) -> PlainTextResponse:
        await check_ready()
        return PlainTextResponse(READY)

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
    install_handlers(app)
    return app
