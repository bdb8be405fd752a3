"""A label service in a thread, which counts what it is asked and can be told to misbehave."""

import hashlib
import io
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ucds.data.content import content_key
from ucds.labels.wire import Balance, Receipt, ServiceInfo, answers_digest
from ucds.serving.signing import Signer
from ucds.serving.uploads import read_images

KEY = "secret-key-of-the-clinic"
Reply = tuple[int, dict[str, str], bytes]
INFO = ServiceInfo(
    provider="alpha",
    model_digest="a" * 32,
    n_clusters=3,
    accepts="images",
    width=None,
    max_batch=8,
    max_image_bytes=1000,
    max_image_pixels=1000,
    max_request_bytes=1000,
    signer="5" * 64,
    balance=Balance(budget=1, used=0, remaining=1),
)
RECEIPT = Receipt(
    entries=["e" * 64],
    time="2026-01-01T00:00:00.000+00:00",
    model_digest="a" * 32,
    answers_digest="b" * 64,
    signer="5" * 64,
    signature="0" * 128,
)


def label_of(content: bytes, n_clusters: int = 7) -> int:
    """The label that the service gives some content."""
    return hashlib.sha256(content).digest()[0] % n_clusters


class FakeService(ThreadingHTTPServer):
    """Answers as version 1 of the wire says.

    Attributes:
        charged: contents that were paid for.
        asked: contents that were asked about, with the number of times.
        answered: samples per request, in order.
        faults: replies to give to the next questions instead of labels; ``None`` drops the connection.
        unusable: contents that get no label.
    """

    daemon_threads = True

    def __init__(self, accepts: str = "images", width: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.signer = Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)))
        self.limit = 10_000
        self.info: dict[str, Any] = {
            "provider": "alpha",
            "model_digest": "a" * 32,
            "n_clusters": 7,
            "accepts": accepts,
            "width": width,
            "max_batch": 8,
            "max_image_bytes": 100_000,
            "max_image_pixels": 1_000_000,
            "max_request_bytes": 400_000,
            "balance": {"budget": self.limit, "used": 0, "remaining": self.limit},
            "signer": self.signer.public,
        }
        self.delay = 0.0
        self.charged: set[bytes] = set()
        self.asked: Counter[bytes] = Counter()
        self.answered: list[int] = []
        self.faults: deque[Reply | None] = deque()
        self.unusable: set[bytes] = set()
        self.requests = 0
        self.bodies: list[bytes] = []
        self.change: Callable[[dict[str, Any]], object] = lambda answer: None
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""

    def answer(self, contents: list[bytes]) -> Reply | None:
        with self._lock:
            self.requests += 1
            self.asked.update(contents)
        time.sleep(self.delay)
        with self._lock:
            return self.faults.popleft() if self.faults else self._labels(contents)

    def _labels(self, contents: list[bytes]) -> Reply:
        labels = {content: label_of(content) for content in contents if content not in self.unusable}
        if len(self.charged | labels.keys()) > self.limit:
            return problem(429)
        self.charged |= labels.keys()
        self.answered.append(len(contents))
        used, bad = len(self.charged), [i for i, content in enumerate(contents) if content not in labels]
        answer = {
            "labels": [labels.get(content) for content in contents],
            "unusable": [{"position": i, "reason": "not an image"} for i in bad],
            "n_clusters": self.info["n_clusters"],
            "provider": self.info["provider"],
            "model_digest": self.info["model_digest"],
            "balance": {"budget": self.limit, "used": used, "remaining": self.limit - used},
            "receipt": self._receipt(labels) if labels else None,
        }
        self.change(answer)
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _receipt(self, labels: dict[bytes, int]) -> dict[str, Any]:
        digest = answers_digest((content_key(content), label) for content, label in labels.items())
        told = {"model_digest": self.info["model_digest"], "answers_digest": digest, "time": RECEIPT.time}
        return self.signer.sign(Receipt, entries=[f"{len(self.answered):064x}"], **told).model_dump()


def problem(status: int, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    """A refusal in the form of RFC 9457."""
    content = {"type": "urn:ucds:problem:x", "title": "T", "status": status, "detail": f"no: {status}"} | more
    sent = {"Content-Type": "application/problem+json"} | (headers or {})
    return status, sent, json.dumps(content).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeService

    def do_GET(self) -> None:
        self._reply(self._refusal() or (200, {}, json.dumps(self.server.info).encode()))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self._reply(self._refusal() or self.server.answer(_contents(self.headers["Content-Type"], body)))

    def _refusal(self) -> Reply | None:
        return None if self.headers["Authorization"] == f"Bearer {KEY}" else problem(401)

    def _reply(self, reply: Reply | None) -> None:
        if reply is None:
            self.close_connection = True
            return
        status, headers, body = reply
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def _contents(kind: str, body: bytes) -> list[bytes]:
    """The samples of a request; images as the provider's own service reads them."""
    if kind == "application/x-npy":
        return [row.tobytes() for row in np.load(io.BytesIO(body), allow_pickle=False)]
    return list(map(bytes, read_images(body, kind, most=100)))
