"""The HTTP application: its paths, their descriptions, and the checks before them."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
import uuid
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ucds.errors import without_secrets
from ucds.labels import wire
from ucds.serving.keys import is_inside
from ucds.serving.ops import Metrics
from ucds.serving.problems import HANDLERS, Refusal, problem_schemas, stopping
from ucds.serving.service import MULTIPART, Service, Shown

VERSION = "1"
REQUEST_ID = "X-Request-ID"
_ALWAYS = (400, 415, 500)  # whatever is asked for
_REFUSALS = (*_ALWAYS, 401, 403, 408, 411, 413, 422, 429, 503)
_TRACE_SECONDS = 60.0
_ROOM_OF_ALL, _ROOM_OF_ONE = 1536, 256  # bytes of an answer: for what it says once, and of each sample
_BEARER = HTTPBearer(scheme_name="key", auto_error=False)
_Shown = Annotated[Shown, Depends(_BEARER)]
logger = logging.getLogger("ucds.serving")


def create_app(service: Service) -> FastAPI:
    """Build the application that clients ask."""
    app = FastAPI(
        title="ucds label service",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.add_middleware(FrontDoor, metrics=service.metrics)
    _add_paths(app, service)
    # FastAPI keeps the description.
    app.openapi()["components"]["schemas"]["Problem"] = wire.Problem.model_json_schema()
    return app


class FrontDoor:
    """Gives each request an id, counts it, and turns unexpected errors into answers that reveal nothing.

    The id appears in the answer, in the ledger's log, and in the request's state as ``request_id``.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._next_traces: dict[object, float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        begun, status, refusal = time.perf_counter(), 0, None
        number = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = number

        async def add_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answer = MutableHeaders(scope=message)
                answer[REQUEST_ID], answer["Cache-Control"] = number, "no-store"
            await send(message)

        try:
            await self._app(scope, receive, add_headers)
        except asyncio.CancelledError:  # its time is over: the service stops
            refusal = stopping()
        except Exception as error:
            # The client does not see the trace: it could tell of the model or of another client.
            trace = "".join(traceback.format_exception(error)) if self._is_new(error) else ""
            logger.error("fault while answering request %s\n%s", number, without_secrets(trace))
            refusal = Refusal("fault", "The service failed on this request; nothing was charged for it.")
        if refusal is not None and not status:
            await refusal.response()(scope, receive, add_headers)
        self._metrics.count(scope["path"], status, time.perf_counter() - begun)

    def _is_new(self, error: Exception) -> bool:
        """Return whether no error of this kind and place was logged within the last minute."""
        kind, now = (type(error), *traceback.extract_tb(error.__traceback__)[-1][:2]), time.monotonic()
        is_new = now >= self._next_traces.get(kind, 0.0)
        if is_new:
            self._next_traces[kind] = now + _TRACE_SECONDS
        return is_new


class BehindProxy:
    """Answers the proxy only, and takes the clients' addresses from it.

    On a Unix socket, anybody who may open it counts as the proxy, and ``network`` is ``None``.
    """

    def __init__(self, app: ASGIApp, network: IPv4Network | IPv6Network | None) -> None:
        self._app, self._network = app, network

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request of the proxy with the address of its client, the last that the proxy names."""
        if self._network is not None and not is_inside(str(scope["client"][0]), self._network):
            refusal = Refusal("not-the-proxy", "Use the address that the provider gave you.")
            return await refusal.response()(scope, receive, send)
        named = Headers(scope=scope).getlist("x-forwarded-for")
        scope["client"] = ("".join(named[-1:]).rpartition(",")[2].strip(), 0)
        await self._app(scope, receive, send)


def render(answer: wire.LabelAnswer | wire.CalibrationAnswer, samples: int, words: str = "") -> Response:
    """Write an answer as JSON whose length depends only on the number of samples.

    Blanks fill the length that other labels, reasons, budgets and receipts would take, so that the length of
    the encrypted traffic reveals nothing about them; `words` are texts about the model, the same in every
    answer.
    """
    most = _ROOM_OF_ALL + len(words.encode()) + _ROOM_OF_ONE * samples
    return Response(answer.model_dump_json().encode().ljust(most), media_type="application/json")


def _add_paths(app: FastAPI, service: Service) -> None:
    body = {"content": _body_schemas(service.accepts, service.limits.max_batch), "required": True}
    post = partial(app.post, openapi_extra={"requestBody": body})

    @post(
        wire.LABELS_PATH,
        response_model=wire.LabelAnswer,
        responses=problem_schemas(*_REFUSALS),
        summary="Label samples",
    )
    async def labels(request: Request, shown: _Shown) -> Response:
        """One integer for each sample, in order; null, with a reason, for one that cannot be used.

        A sample counts against the budget the first time it is asked; asking again is free.
        """
        answer = await service.answer(request, shown)
        return render(answer, len(answer.labels), f"{answer.provider}{service.labeller.privacy}")

    refusals = problem_schemas(*_ALWAYS, 401, 403, 429, 503)

    @app.get(wire.INFO_PATH, responses=refusals, summary="Describe the service")
    async def info(request: Request, shown: _Shown) -> wire.ServiceInfo:
        """The model's name, the number of clusters, the limits of a request, and the budget of the key."""
        return await service.info(request, shown)

    if service.calibrates:

        @post(
            wire.CALIBRATION_PATH,
            response_model=wire.CalibrationAnswer,
            responses=problem_schemas(*_REFUSALS, 409),
            summary="Calibrate a key",
        )
        async def calibration(request: Request, shown: _Shown) -> Response:
            """Fix the mean of these samples, to be subtracted from all samples of the key.

            Once for a key and a model, before its first label. Nothing is charged.
            """
            answer, samples = await service.calibrate(request, shown)
            return render(answer, samples)


def _body_schemas(accepts: wire.Accepts, max_batch: int) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}  # an empty image is answered: it cannot be used
    if accepts == "embeddings":
        return {wire.NPY_TYPE: {"schema": file | {"minLength": 1}}}
    files = {"type": "array", "minItems": 1, "maxItems": max_batch, "items": file}
    schema = {
        "type": "object",
        "properties": {wire.IMAGES_FIELD: files},
        "required": [wire.IMAGES_FIELD],
        "additionalProperties": False,
    }
    return {MULTIPART: {"schema": schema}}
