"""The HTTP application: its paths, and their descriptions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse, PlainTextResponse

from ucds.labels import wire
from ucds.serving.accounts import AccountsOptions
from ucds.serving.answering import MULTIPART, Answering, render_answer
from ucds.serving.checkpoints import CheckpointWriter
from ucds.serving.front import FrontDoor
from ucds.serving.health import ALIVE, READY
from ucds.serving.labeller import Labeller
from ucds.serving.ledger import Ledger
from ucds.serving.metrics import LOOPBACK, MetricsMiddleware, Networks
from ucds.serving.pages import render_page
from ucds.serving.problems import Refusal, install_handlers, problem_schemas
from ucds.serving.rate import limit_headers
from ucds.serving.settings import Limits
from ucds.serving.signing import Signer

VERSION = "1"
_ALWAYS = (400, 415, 421, 500)  # whatever is asked for
_REFUSALS = (*_ALWAYS, 401, 403, 408, 411, 413, 422, 429, 503)
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BEARER = HTTPBearer(scheme_name="key", auto_error=False)
_Shown = Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]


def create_app(
    labeller: Labeller,
    ledger: Ledger | None = None,
    limits: Limits | None = None,
    *,
    signer: Signer | None = None,
    checkpoints: CheckpointWriter | None = None,
    metrics_from: tuple[str, ...] = LOOPBACK,
    hosts: tuple[str, ...] = (),
    shared_rates: int | None = None,
) -> FastAPI:
    """Build the service as an ASGI application; `run_server` runs it and closes it.

    Args:
        labeller: model.
        ledger: ledger of keys and answers; without one everybody is answered, unmetered.
        limits: limits of a request and of the service; the defaults if ``None``.
        signer: signs a receipt for each answer; no receipts are given if ``None``.
        checkpoints: writes checkpoints of the ledger's log, and is closed with the application; ``None``
            without checkpoints.
        metrics_from: networks that may read the metrics.
        hosts: names by which the service may be asked; any name if empty.
        shared_rates: open file in which several processes share the rates of the keys, by its number.

    Raises:
        InputError: one of the networks is not a network.
    """
    networks = Networks(metrics_from)
    accounts = None
    if ledger is not None:
        accounts = AccountsOptions(ledger, signer, checkpoints, shared_rates)
    answering = Answering(labeller, accounts, limits or Limits())
    app = FastAPI(
        title="ucds label service", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.answering = answering
    app.add_middleware(FrontDoor, hosts=hosts)
    app.add_middleware(MetricsMiddleware, metrics=answering.metrics)
    install_handlers(app)
    _add_service(app, answering)
    _add_operation(app, answering, networks)
    _, problems = models_json_schema(
        [(wire.Problem, "validation")], ref_template="#/components/schemas/{model}"
    )
    description = app.openapi()  # FastAPI keeps it
    description["components"]["schemas"] |= problems["$defs"]
    if ledger is None:
        _declare_open(description)
    return app


def _declare_open(description: dict[str, Any]) -> None:
    """Say of every operation that takes a key that it may be asked without."""
    for operations in description["paths"].values():
        for operation in operations.values():
            if "security" in operation:
                operation["security"].append({})


def _add_service(app: FastAPI, answering: Answering) -> None:
    body = {"content": _body_schemas(answering.accepts, answering.limits.max_batch), "required": True}
    post = partial(app.post, openapi_extra={"requestBody": body})

    @post(
        wire.LABELS_PATH,
        response_model=wire.LabelAnswer,
        responses=problem_schemas(*_REFUSALS),
        summary="Label samples",
    )
    async def labels(request: Request, shown: _Shown) -> Response:
        """One integer for each sample, in order.

        A sample counts against the budget the first time it is asked; asking again is free.
        """
        answer, headers = await answering.answer(request, shown)
        return Response(render_answer(answer), media_type="application/json", headers=headers)

    refusals = problem_schemas(*_ALWAYS, 401, 403, 429, 503)

    @app.get(wire.INFO_PATH, responses=refusals, summary="What the service takes")
    async def info(request: Request, response: Response, shown: _Shown) -> wire.ServiceInfo:
        """The model's name, the number of clusters, the limits of a request, and the budget of the key."""
        key = await answering.identify(request, shown)
        if key is not None:
            response.headers.update(limit_headers(key.budget, key.rate, None))
        return await answering.info(key)

    if answering.calibrates:

        @post(wire.CALIBRATION_PATH, responses=problem_schemas(*_REFUSALS, 409), summary="Calibrate a key")
        async def calibration(request: Request, shown: _Shown) -> wire.Calibration:
            """Fix the mean of these samples as the one from which all samples of the key are seen.

            Once for a key and a model, before its first label. Nothing is charged.
            """
            return await answering.calibrate(request, shown)


def _add_operation(app: FastAPI, answering: Answering, networks: Networks) -> None:
    get = partial(app.get, response_class=PlainTextResponse)

    @get("/healthz", responses=problem_schemas(*_ALWAYS), summary="Whether the process lives")
    async def healthz() -> str:
        """Always `ok`; it says nothing of the model or the ledger."""
        return ALIVE

    @get("/readyz", responses=problem_schemas(*_ALWAYS, 503), summary="Whether it can answer now")
    async def readyz() -> str:
        """`ready` when the model runs and the ledger takes a write."""
        await answering.check_ready()
        return READY

    @get("/metrics", responses=problem_schemas(*_ALWAYS, 403), summary="Figures for Prometheus")
    async def metrics(request: Request) -> Response:
        """For the operator alone: from loopback, unless other networks are named at the start."""
        if request.client is None or request.client.host not in networks:
            raise Refusal("not-for-you", "The metrics are for the operator's network.")
        return Response(answering.metrics.render(), media_type=_METRICS_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(render_page(app.openapi()))


def _body_schemas(accepts: wire.Accepts, max_batch: int) -> dict[str, Any]:
    file = {"type": "string", "format": "binary", "minLength": 1}
    if accepts == "embeddings":
        return {wire.NPY_TYPE: {"schema": file}}
    files = {"type": "array", "minItems": 1, "maxItems": max_batch, "items": file}
    schema = {
        "type": "object",
        "properties": {wire.IMAGES_FIELD: files},
        "required": [wire.IMAGES_FIELD],
        "additionalProperties": False,
    }
    return {MULTIPART: {"schema": schema}}
