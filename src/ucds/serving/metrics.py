"""Figures for the operator; none of them tells one key or one image from another."""

from __future__ import annotations

import time
from functools import partial
from ipaddress import ip_address, ip_network

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ucds.errors import InputError
from ucds.labels.wire import CALIBRATION_PATH, INFO_PATH, LABELS_PATH
from ucds.serving.batcher import Batcher
from ucds.serving.checkpoints import CheckpointWriter
from ucds.serving.shares import Share

LOOPBACK = ("127.0.0.0/8", "::1/128")
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PATHS = (
    *(LABELS_PATH, CALIBRATION_PATH, INFO_PATH),
    *("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"),
)


class Metrics:
    """The figures of one application, of its model, and of the queue before it."""

    def __init__(self, batcher: Batcher, queue: Share) -> None:
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        seconds = partial(Histogram, buckets=_SECONDS, registry=self._registry)
        self._requests = counter("ucds_requests", "Requests by path and status", ["path", "status"])
        self._seconds = seconds("ucds_request_seconds", "Time to answer a request", ["path"])
        self.in_work = gauge("ucds_requests_in_work", "Requests in work")
        self.answered = counter("ucds_samples_answered", "Samples answered")
        self.computed = counter("ucds_samples_computed", "Samples the model saw")
        self.unusable = counter("ucds_samples_unusable", "Images that could not be used")
        wrong = "Requests without a valid key, by the kind of the refusal"
        self._failures = counter("ucds_failed_authentications", wrong, ["reason"])
        queued = gauge("ucds_samples_queued", "Samples accepted and not yet answered")
        queued.set_function(lambda: queue.held)
        gauge("ucds_model_batches", "Batches the model ran").set_function(lambda: batcher.batches)
        rows = gauge("ucds_model_rows", "Samples in those batches, without padding")
        rows.set_function(lambda: batcher.rows)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered after some seconds."""
        known = path if path in _PATHS else "other"  # a client must not be able to make new series
        self._requests.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def count_failure(self, reason: str) -> None:
        """Count a request without a valid key."""
        self._failures.labels(reason).inc()

    def watch_checkpoints(self, writer: CheckpointWriter) -> None:
        """Show how many tries to write a checkpoint failed."""
        gauge = Gauge(
            "ucds_checkpoint_failures", "Failed tries to write a checkpoint", registry=self._registry
        )
        gauge.set_function(lambda: writer.failures)

    def render(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """Counts every request, answered or not."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.in_work.track_inprogress():
            try:
                await self._app(scope, receive, note)
            finally:
                self._metrics.count(scope["path"], status, time.perf_counter() - begun)
        return None


class Networks:
    """A set of addresses.

    Args:
        networks: networks in the usual notation, such as ``10.0.0.0/8``.

    Raises:
        InputError: one of them is not a network.
    """

    def __init__(self, networks: tuple[str, ...]) -> None:
        try:
            self._networks = [ip_network(network) for network in networks]
        except ValueError as error:
            raise InputError(f"no network: {error}") from None

    def __contains__(self, host: object) -> bool:
        try:
            address = ip_address(str(host))
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)
