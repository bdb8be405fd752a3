"""Reports to the operator: whether the service runs and can answer, its figures, and security events."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ucds.labels.wire import CALIBRATION_PATH, INFO_PATH, LABELS_PATH
from ucds.serving.problems import HANDLERS

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PATHS = (LABELS_PATH, CALIBRATION_PATH, INFO_PATH, "/openapi.json")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
security = logging.getLogger("ucds.security")


def record(event: str, **fields: object) -> None:
    """Write one security event as a line of JSON on the standard error, which journald or syslog keep.

    The event has a name such as ``failed-authentication``. The fields describe it; they never hold a secret
    or a client's content.
    """
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event} | fields
    # Without any setting of the program, Python writes a warning to the standard error as it is.
    security.warning(json.dumps(line))


class Metrics:
    """Figures of one service; they name no key and no image."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        seconds = partial(Histogram, buckets=_SECONDS, registry=self.registry)
        self._requests = counter("ucds_requests", "Requests by path and status", ["path", "status"])
        self._seconds = seconds("ucds_request_seconds", "Time to answer a request", ["path"])
        self.answered = counter("ucds_samples_answered", "Samples answered")
        self.computed = counter("ucds_samples_computed", "Samples the model saw")
        self.unusable = counter("ucds_samples_unusable", "Images that could not be used")
        wrong = "Requests without a valid key, by the kind of the refusal"
        self.failures = counter("ucds_failed_authentications", wrong, ["reason"])

    def watch(self, name: str, words: str, value: Callable[[], float]) -> None:
        """Show a figure that is computed when it is requested."""
        Gauge(name, words, registry=self.registry).set_function(value)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered after some seconds."""
        known = path if path in _PATHS else "other"  # a client must not be able to make new series
        self._requests.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)


def create_ops_app(metrics: Metrics, check_ready: Callable[[], str]) -> Starlette:
    """Build the application of the operator's port; `check_ready` raises while the service cannot answer."""

    def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def readyz(request: Request) -> Response:
        return PlainTextResponse(f"{check_ready()}\n")

    def figures(request: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=_METRICS_TYPE)

    paths = {"/healthz": healthz, "/readyz": readyz, "/metrics": figures}
    return Starlette(routes=[Route(*entry) for entry in paths.items()], exception_handlers=HANDLERS)
