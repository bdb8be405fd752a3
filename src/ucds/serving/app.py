"""The HTTP application: paths, their descriptions, and what holds the service together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse

from ucds.labels.wire import (
    IMAGES_FIELD,
    INFO_PATH,
    LABELS_PATH,
    NPY_TYPE,
    Accepts,
    InvalidSample,
    LabelAnswer,
    Problem,
    ServiceInfo,
)
from ucds.serving.answering import MULTIPART, Answering, render_answer
from ucds.serving.labeller import Labeller
from ucds.serving.ledger import Ledger
from ucds.serving.metrics import LOOPBACK, MetricsMiddleware, Networks
from ucds.serving.pages import render_page
from ucds.serving.problems import Refusal, install_handlers, problem_schemas
from ucds.serving.settings import Limits

VERSION = "1"
_REFUSALS = (401, 403, 408, 413, 415, 422, 429, 500, 503)
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(
    labeller: Labeller,
    ledger: Ledger | None = None,
    limits: Limits | None = None,
    *,
    open_without_keys: bool = False,
    metrics_from: tuple[str, ...] = LOOPBACK,
) -> FastAPI:
    """The service as an ASGI application.

    Args:
        labeller: the model.
        ledger: of keys and answers; without one everybody is answered, unmetered.
        limits: of requests.
        open_without_keys: answer everybody as long as the ledger never held a key.
        metrics_from: networks that may read the metrics.
    """
    answering = Answering(labeller, ledger, limits or Limits(), open_without_keys=open_without_keys)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        answering.close()

    app = FastAPI(
        title="ucds label service",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.answering = answering
    app.add_middleware(MetricsMiddleware, metrics=answering.metrics)
    install_handlers(app)
    _add_service(app, answering)
    _add_operation(app, answering, Networks(metrics_from))
    _describe(app)
    return app


def _add_service(app: FastAPI, answering: Answering) -> None:
    body = {"content": _body_schemas(answering.accepts), "required": True}

    @app.post(
        LABELS_PATH,
        response_model=LabelAnswer,
        responses=problem_schemas(*_REFUSALS),
        openapi_extra={"requestBody": body, "security": [{"key": []}]},
        summary="Label samples",
    )
    async def labels(request: Request) -> Response:
        """One integer for each sample, in order.

        A sample counts against the budget the first time it is asked; asking again is free.
        """
        answer = await answering.answer(request)
        return Response(render_answer(answer), media_type="application/json")

    @app.get(
        INFO_PATH,
        response_model=ServiceInfo,
        responses=problem_schemas(401, 403, 500, 503),
        openapi_extra={"security": [{"key": []}]},
        summary="What the service takes",
    )
    async def info(request: Request) -> ServiceInfo:
        """The model's name, the number of clusters, and the limits of a request."""
        await answering.identify(request)
        return answering.info()


def _add_operation(app: FastAPI, answering: Answering, networks: Networks) -> None:
    plain = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get(
        "/healthz",
        response_class=Response,
        responses=plain | problem_schemas(500),  # type: ignore[operator]
        summary="Whether the process lives",
    )
    async def healthz() -> Response:
        """Always `ok`; it says nothing of the model or the ledger."""
        return Response("ok\n", media_type="text/plain")

    @app.get(
        "/readyz",
        response_class=Response,
        responses=plain | problem_schemas(500, 503),  # type: ignore[operator]
        summary="Whether it can answer now",
    )
    async def readyz() -> Response:
        """`ready` when the model runs and the ledger can be reached."""
        reason = await answering.check_ready()
        if reason is not None:
            raise Refusal("busy", reason, retry_after=5)
        return Response("ready\n", media_type="text/plain")

    @app.get(
        "/metrics",
        response_class=Response,
        responses=plain | problem_schemas(403, 500),  # type: ignore[operator]
        summary="Figures for Prometheus",
    )
    async def metrics(request: Request) -> Response:
        """For the operator alone: from loopback, unless other networks are named at the start."""
        if request.client is None or request.client.host not in networks:
            raise Refusal("not-for-you", "The metrics are for the operator's network.")
        return Response(answering.metrics.render(), media_type=_METRICS_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()))


def _body_schemas(accepts: Accepts) -> dict[str, Any]:
    if accepts == "embeddings":
        return {NPY_TYPE: {"schema": {"type": "string", "format": "binary"}}}
    files = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
    schema = {
        "type": "object",
        "properties": {IMAGES_FIELD: files},
        "required": [IMAGES_FIELD],
        "additionalProperties": False,
    }
    return {MULTIPART: {"schema": schema}}


def _describe(app: FastAPI) -> None:
    """Add to the schema what FastAPI does not see: the key, and the documents of refusals."""

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes)
            components = made.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            template = "#/components/schemas/{model}"
            for model in (Problem, InvalidSample):
                described = model.model_json_schema(ref_template=template)
                described.pop("$defs", None)
                schemas[model.__name__] = described
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]
