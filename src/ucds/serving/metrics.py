"""What an operator may watch; nothing in it tells one key or one image from another."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import ip_address, ip_network

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ucds.errors import InputError
from ucds.serving.batcher import Batcher

LOOPBACK = ("127.0.0.0/8", "::1/128")
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PATHS = ("/v1/labels", "/v1/info", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")


class Metrics:
    """The figures of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "ucds_requests", "Requests by path and status", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "ucds_request_seconds",
            "Time to answer a request",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_work = Gauge("ucds_requests_in_work", "Requests in work", registry=self.registry)
        self.answered = Counter("ucds_samples_answered", "Samples answered", registry=self.registry)
        self.computed = Counter("ucds_samples_computed", "Samples the model saw", registry=self.registry)

    def watch(self, batcher: Batcher) -> None:
        """Show the state of the queue as well."""
        figures: list[tuple[str, str, Callable[[], float]]] = [
            ("ucds_samples_queued", "Samples accepted and not yet answered", lambda: batcher.queued),
            ("ucds_model_batches", "Batches the model ran", lambda: batcher.batches),
            ("ucds_model_rows", "Samples in those batches, without padding", lambda: batcher.rows),
        ]
        for name, text, value in figures:
            Gauge(name, text, registry=self.registry).set_function(value)

    def saw(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = path if path in _PATHS else "other"  # a client must not be able to make new series
        self._requests.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def render(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts every request, whatever becomes of it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.in_work.inc()
        try:
            await self._app(scope, receive, note)
        finally:
            self._metrics.in_work.dec()
            self._metrics.saw(scope["path"], status, time.perf_counter() - begun)
        return None


class Networks:
    """Addresses that may do something.

    Args:
        networks: in the usual notation, ``10.0.0.0/8``.

    Raises:
        UserError: one of them is none.
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
