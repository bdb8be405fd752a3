"""A service over real HTTP in this process, small models for it, and clients."""

from __future__ import annotations

import io
import itertools
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import label_service
import numpy as np
from PIL import Image

from ucds.encoders.encoder import IdentityEncoder
from ucds.labels.wire import PROBLEM_TYPE, Problem
from ucds.serving.ledger import Ledger
from ucds.serving.limits import Limits
from ucds.serving.serve import listen
from ucds.serving.service import Service as LabelService
from ucds.serving.signing import Signer
from ucds.serving.verify import verify
from ucds.training.model_file import save_model

WIDTH = 4
K = 12
NPY = {"Content-Type": "application/x-npy"}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
SMALL = (
    "waste-seconds=1000000",
    "max-batch=20",
    "max-image-bytes=200000",
    "max-image-pixels=1000000",
    "max-request-bytes=1000000",
)
"""Limits that hostile requests exceed easily."""


class FakeLabeller:
    """Rows of embeddings; the label is the first value, rounded."""

    name, digest, n_clusters, batch_size = "fake", "d" * 32, K, 8
    privacy: str | None = None
    mean_width: int | None = None
    columns: tuple[str, ...] | None = None
    row_shape: tuple[int, ...] = (WIDTH,)
    dtype: Any = np.float32

    def __init__(self) -> None:
        self.batches = 0
        self.gate = threading.Event()
        self.gate.set()

    def label(self, rows: np.ndarray) -> np.ndarray:
        assert rows.shape == (self.batch_size, *self.row_shape)
        self.gate.wait(20)
        self.batches += 1
        return self.look_at(rows)

    def look_at(self, rows: np.ndarray) -> np.ndarray:
        return np.abs(rows[:, 0].round()).astype(np.int64) % K


class FakeMeanLabeller(FakeLabeller):
    """Rows of embeddings, whose mean changes no label."""

    mean_width = WIDTH

    def label(self, rows: np.ndarray, means: np.ndarray | None = None) -> np.ndarray:
        assert means.shape == (self.batch_size, WIDTH)
        return super().label(rows)

    def mean(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows.mean(0))


class FakeImageLabeller(FakeLabeller):
    """Small squares; the label is the brightness of the middle, in steps of 20."""

    row_shape = (3, 32, 32)
    dtype = np.uint8

    def look_at(self, rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0, 16, 16].astype(np.int64) + 10) // 20 % K


@dataclass
class Service:
    """A service that runs: its address, the operator's, the key that clients show, and its ledger.

    The headers are those of a body that it takes.
    """

    url: str
    ops: str = ""
    key: str | None = None
    ledger: Ledger | None = None
    headers: dict[str, str] = field(default_factory=lambda: MULTIPART)

    def with_a_new_key(self, budget: int = 100) -> Service:
        """The same service, asked with a key that nobody else has."""
        return replace(self, key=self.ledger.add_key(f"key{len(self.ledger.list_keys())}", budget))

    def client(self, key: str | None = None) -> httpx.Client:
        return label_service.client_of(self.url, str(key or self.key))

    def ask(
        self, *samples: Any, key: str | None = None, path: str = "/v1/labels", timeout: float = 120
    ) -> httpx.Response:
        """The answer to a request with image files, or with rows of embeddings."""
        body: dict[str, Any] = {"files": [("images", ("image", sample)) for sample in samples]}
        if not isinstance(samples[0], bytes):
            body = {"content": npy(samples), "headers": NPY}
        with self.client(key) as client:
            return client.post(path, timeout=timeout, **body)

    def send(self, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """The answer to a request with this body, and with these headers instead of the usual ones."""
        with self.client() as client:
            return client.post("/v1/labels", content=content, headers=headers or self.headers)

    def info(self, key: str | None = None) -> dict[str, Any]:
        with self.client(key) as client:
            return dict(client.get("/v1/info").json())

    def figure(self, name: str) -> float:
        """The value of one figure of the operator's page."""
        lines = httpx.get(f"{self.ops}/metrics").text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    @property
    def queued(self) -> float:
        return self.figure("ucds_samples_queued")

    def connect(self) -> socket.socket:
        url = httpx.URL(self.url)
        return socket.create_connection((url.host, url.port), timeout=60)

    def head(self, *lines: str, host: str = "service") -> bytes:
        """The first lines of a request with the key."""
        headers = {"Host": host, "Authorization": f"Bearer {self.key}"} | self.headers
        words = ["POST /v1/labels HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items()), *lines]
        return ("\r\n".join(words) + "\r\n\r\n").encode()

    def exchange(self, *pieces: bytes) -> bytes:
        """What comes on a bare connection until the other side closes it, or says nothing for 3 seconds."""
        received = b""
        with self.connect() as connection, suppress(ConnectionError, TimeoutError):
            connection.settimeout(3)
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(65536):
                received += data
        return received


@contextmanager
def running(
    labeller: Any,
    ledger: Ledger,
    limits: Limits | None = None,
    *,
    budget: int = 0,
    signer: Signer | None = None,
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> Iterator[Service]:
    """Run a service in a thread; with a budget, its clients show a key of the name "anna"."""
    signer = signer or Signer.open(Path(str(ledger.place)) / "signing-key.pem")
    ledger.trust(signer.public)
    port, key = free_port(), ledger.add_key("anna", budget) if budget else None

    def serve(ready: Callable[[str], None], stop: threading.Event) -> None:
        told = {"host": "127.0.0.1", "ops_port": port, "ready": ready, "stop": stop} | options
        with closing(LabelService(labeller, ledger, signer, limits or Limits(), clock)) as service:
            listen(service, **told)

    headers = MULTIPART if len(labeller.row_shape) == 3 else NPY
    with in_thread(serve) as url:
        yield Service(url, f"http://127.0.0.1:{port}", key, ledger, headers)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def in_thread(serve: Callable[[Callable[[str], None], threading.Event], None]) -> Iterator[str]:
    """A blocking function that serves until an event, in a thread of its own; its URL is given."""
    up: list[str] = []
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve, up.append, stop)
        try:
            wait_until(lambda: bool(up) or done.done())
            if not up:
                done.result()
            yield up[0]
        finally:
            stop.set()
            done.result(30)


def children() -> set[int]:
    """Processes that this one has started."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for numbers in lists for number in numbers.read_text().split()}


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def refused(answer: httpx.Response, status: int, kind: str = "[a-z-]+") -> Problem:
    """The problem document of a refusal of a status and a kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM_TYPE
    problem = Problem.model_validate(answer.json())
    assert problem.status == status
    assert re.fullmatch(f"urn:ucds:problem:{kind}", problem.type)
    assert problem.detail.endswith(".")
    return problem


def npy(rows: Any, dtype: Any = np.float32) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(rows, dtype), allow_pickle=True)
    return buffer.getvalue()


def vector(label: int, serial: float = 0.0) -> list[float]:
    """A row of that label; rows of different serials are different samples."""
    return [float(label), serial, 0.5, -1.0]


def picture(label: int, form: str = "PNG", side: int = 40, serial: int = 0) -> bytes:
    pixels = np.full((side, side, 3), 20 * label, np.uint8)
    pixels[0, 0] = serial % 256, serial // 256 % 256, serial // 65536
    options = {"lossless": True} if form == "WEBP" else {}
    return label_service.saved(Image.fromarray(pixels), form, **options)


def make_run(folder: Path, role: str = "source") -> Path:
    """A finished run with a random model."""
    folder.mkdir()
    save_model(folder, label_service.source_model(IdentityEncoder(WIDTH), K, name=folder.name, role=role))
    return folder


@contextmanager
def command_for_images(run: Path, *limits: str) -> Iterator[tuple[Service, subprocess.Popen[str]]]:
    """`ucds serve` in a process of its own, with a light model and a key; its ledger is sound at the end."""
    (key,) = label_service.make_run(run, "ucds/oriented_edges")
    options = [word for limit in limits for word in ("--limit", limit)]
    with label_service.service(run, "--port", 0, *options) as (process, url):
        yield Service(url, key=key), process
    assert verify(run).faults == ()


@contextmanager
def asking(service: Service, count: int = 6) -> Iterator[list[int | None]]:
    """Clients that ask for new samples all the time, each again until it is answered; the labels so far.

    At the end each waits for its last answer.
    """
    stop, numbers, labels = threading.Event(), itertools.count(), list[int | None]()

    def ask(rows: list[list[float]]) -> list[int | None] | None:
        with suppress(httpx.TransportError):  # the service was killed
            answer = service.ask(*rows, timeout=10)
            if answer.status_code == 200:
                return list(answer.json()["labels"])
            assert answer.status_code in (429, 503), answer.text  # 429: a proxy of an address that asks often
        return None

    def work() -> None:
        while not stop.is_set():
            number = next(numbers)
            rows = [vector(number % 7, number + part / 4) for part in range(3)]
            while (found := ask(rows)) is None:
                time.sleep(0.1)
            labels.extend(found)

    with ThreadPoolExecutor(count) as pool:
        working = [pool.submit(work) for _ in range(count)]
        try:
            yield labels
        finally:
            stop.set()
            for one in working:
                one.result()
