"""The label service under hostile clients: what an honest client notices, through nginx and alone.

For each attack a service (`ucds serve`, SQLite ledger) runs as a process of its own with a light model, so
that decoding, which is attacked, counts in full; first with nginx and `deploy/nginx.conf` before it, then the
service itself. One key asks honestly, one image a request, from the address 127.0.0.1: in the first row
alone, in the others while an attacker works at 127.0.0.2, at the lowest priority, for it would have a machine
of its own. Meanwhile other processes ask the operator's port for `/healthz` each 50 ms on a new connection,
read the memory of the service and its decoders, and look into the open files of nginx. Then SIGTERM is sent.

    python benchmarks/hostile.py
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import platform
import signal
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import label_service as kit
import numpy as np
import psutil
import torch
from records import Row, table

WINDOWS, WINDOW_SECONDS, LONGEST_END, SENDERS, CALIBRATED = 3, 6, 25, 6, 32
HONEST, HOSTILE = "127.0.0.1", "127.0.0.2"
SECONDS, TIMES_ALONE, HEALTH_SECONDS, END_SECONDS, MEMORY_MIB = 0.25, 2.0, 0.2, 14.0, 2048
FORK = multiprocessing.get_context("fork")
FILES: dict[str, Callable[[], bytes]] = {
    "JPEG 2000, 719 bytes": kit.slow_jpeg2000,
    "JPEG of 10,000 scans": kit.many_scans,
    "JPEG of fill bytes, 16 MiB": kit.fill_bytes,
    "PPM comment, 1 MiB": kit.comments,
    "TIFF tile of 900 megapixels": kit.large_tile,
    "WebP of 33 megapixels": kit.large_webp,
    "BMP of short runs, 16 MB": kit.slow_bmp,
}
NOBODY = "nobody"
SLOW, WRONG, IDLE = "128 slow bodies", "800 slow bodies with wrong keys", "512 idle connections"
UPLOADS = "uploads of 64 MiB with wrong keys"
LEFT, CALIBRATIONS = "abandoned requests", "abandoned calibrations"
UNREADABLE = "bodies that no reader takes"
NGINX = "Through nginx"
ATTACKS = {
    NGINX: (NOBODY, *FILES, UNREADABLE, SLOW, WRONG, IDLE, UPLOADS, LEFT, CALIBRATIONS),
    "The service alone": (
        NOBODY,
        *FILES,
        UNREADABLE,
        SLOW,
        UPLOADS,
        LEFT,
        CALIBRATIONS,
    ),  # a proxy holds connections
}


@dataclass(frozen=True)
class Place:
    """Where clients ask: an address, and the certificates that they believe."""

    url: str
    trusted: ssl.SSLContext | bool = False

    def client(self, key: str, address: str = HOSTILE) -> httpx.Client:
        """Open a client, by default at the attacker's address."""
        return kit.client_of(self.url, key, address, self.trusted)


@dataclass
class Figures:
    """What was seen of one attack; times in seconds, memory in MiB."""

    windows: list[list[float]] = field(default_factory=list)
    failures: int = 0
    health: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    end: float = float("inf")

    @property
    def times(self) -> list[float]:
        """Times of all honest requests."""
        return list(itertools.chain.from_iterable(self.windows))

    @property
    def p99(self) -> float:
        """Median over the windows of the 99th percentile."""
        return statistics.median(float(np.quantile(times, 0.99)) for times in self.windows)

    def misses(self, name: str, alone: float) -> list[str]:
        """Targets that are missed, in words."""
        told = {
            f"p99 over {SECONDS} s": self.p99 > SECONDS,
            f"p99 over {TIMES_ALONE:g} x alone": self.p99 > TIMES_ALONE * alone,
            f"health over {HEALTH_SECONDS} s": max(self.health) > HEALTH_SECONDS,
            f"end over {END_SECONDS:g} s": self.end > END_SECONDS,
            f"memory over {MEMORY_MIB} MiB": max(self.memory, default=0) > MEMORY_MIB,
            "honest requests failed": self.failures > 0,
            "nginx kept a body": max(self.kept, default=0) > 0,
            "a fault": 500 in self.statuses,
            "a refusal did not arrive as 401": name == UPLOADS and self.statuses != [401],
        }
        return [words for words, missed in told.items() if missed]


def ask(client: httpx.Client, images: list[bytes]) -> int:
    """Send images: the status of the answer, 204 where an image got no label, 0 without an answer."""
    with contextlib.suppress(httpx.TransportError):
        answer = client.send(kit.labels_request(client, images))
        return 204 if answer.is_success and None in answer.json()["labels"] else answer.status_code
    return 0


def ask_honestly(place: Place, key: str, seconds: float, serials: Iterator[int]) -> tuple[list[float], int]:
    """Ask one image after the other: the time of each answer, and the number of failures."""
    images, failures, times = kit.make_images(1), 0, list[float]()
    end = time.monotonic() + seconds
    with place.client(key, HONEST) as client:
        while (begun := time.monotonic()) < end:
            if ask(client, kit.fresh(images, serials)) != 200:
                failures += 1
                time.sleep(0.05)
            times.append(time.monotonic() - begun)
    return times, failures


def attack(place: Place, keys: list[str], name: str, statuses: list[bool]) -> None:
    """Begin all that belongs to an attack, and go on until the process is killed."""
    os.nice(19)
    serials, work = itertools.count(), list[Callable[[], None]]()
    if name in FILES or name == UPLOADS:
        data = FILES.get(name, lambda: bytes(64 * 2**20 - 4096))()
        key = "ucds_wrong" if name == UPLOADS else keys[0]
        work = [lambda: _send_files(place.client(key), data, serials, statuses)] * SENDERS
    elif name == UNREADABLE:
        work = [lambda: _send_unreadable(place.client(keys[0]), statuses)] * SENDERS
    elif name == IDLE:
        work = [lambda: _hold_idle(place)] * 512
    elif name in (SLOW, WRONG):
        key = "ucds_wrong" if name == WRONG else keys[0]
        work = [lambda: _hold(place.client(key))] * int(name.split()[0])
    elif name == LEFT:
        work = [lambda: _leave(place.client(keys[0]), "/v1/labels", serials)] * SENDERS
    elif name == CALIBRATIONS:  # a key can be calibrated once
        clients = map(place.client, keys)
        work = [lambda one=one: _leave(one, "/v1/calibration", serials) for one in clients]  # type: ignore[misc]
    for one in work:
        threading.Thread(target=one).start()


def _send_files(client: httpx.Client, data: bytes, serials: Iterator[int], statuses: list[bool]) -> None:
    """Send a file again and again, each time as a new one, whatever `Retry-After` says."""
    client.headers["Connection"] = "close"
    while True:
        statuses[ask(client, kit.fresh([data], serials))] = True
        time.sleep(0.05)


def _send_unreadable(client: httpx.Client, statuses: list[bool]) -> None:
    """Send bodies whose header names a character set that Python refuses to use."""
    headers = {"Content-Type": "multipart/form-data; boundary*=undefined''x"}
    while True:
        with contextlib.suppress(httpx.TransportError):
            statuses[client.post("/v1/labels", content=b"x" * 5000, headers=headers).status_code] = True


def _hold_idle(place: Place) -> None:
    """Hold a connection without a word."""
    url = httpx.URL(place.url)
    assert isinstance(place.trusted, ssl.SSLContext)
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HONEST, url.port), timeout=60, source_address=(HOSTILE, 0)) as plain,
            place.trusted.wrap_socket(plain, server_hostname=url.host) as connection,
        ):
            connection.recv(1)
        time.sleep(0.2)


def _hold(client: httpx.Client) -> None:
    """Hold a connection with a body that comes at one byte a second."""
    whole = kit.labels_request(client, [b""])
    headers = {"Content-Type": whole.headers["Content-Type"], "Content-Length": "100000"}

    def body() -> Iterator[bytes]:
        yield whole.content[:60]
        while True:
            time.sleep(1)
            yield b"x"

    while True:
        with contextlib.suppress(httpx.HTTPError):
            client.post("/v1/labels", content=body(), headers=headers)
        time.sleep(0.2)


def _leave(client: httpx.Client, path: str, serials: Iterator[int]) -> None:
    """Ask about new images and leave before the answer, again and again."""
    images = kit.make_images(CALIBRATED)
    client.timeout = httpx.Timeout(60, read=0.1)
    while True:
        with contextlib.suppress(httpx.TransportError):
            client.send(kit.labels_request(client, kit.fresh(images, serials), path))


@contextlib.contextmanager
def beside(seconds: float, look: Callable[[], float]) -> Iterator[list[float]]:
    """Measure every so many seconds in a process of its own; the list has the values afterwards."""
    over, queue, found = FORK.Event(), FORK.SimpleQueue(), list[float]()

    def work() -> None:
        while not over.wait(seconds):
            found.append(look())
        queue.put(found)

    process = FORK.Process(target=work, daemon=True)
    process.start()
    try:
        yield found
    finally:
        over.set()
        found += queue.get()
        process.join()


def ask_health(client: httpx.Client) -> float:
    """Seconds until the service tells its health; infinite where it does not."""
    begun = time.monotonic()
    with contextlib.suppress(httpx.TransportError):
        if client.get("/healthz").is_success:
            return time.monotonic() - begun
    return float("inf")


def read_memory(service: psutil.Process) -> float:
    """Memory of a process and its children in MiB; shared pages count once."""
    total = 0.0
    with contextlib.suppress(psutil.Error):
        for one in (service, *service.children()):
            with contextlib.suppress(psutil.Error):
                total += one.memory_full_info().pss / 2**20
    return total


def free_port() -> int:
    with socket.create_server((HONEST, 0)) as free:
        return int(free.getsockname()[1])


def measure(name: str, way: str) -> Figures:
    """One attack on a fresh service, over some windows of time."""
    figures, serials, ports = Figures(), itertools.count(), (free_port(), free_port(), free_port())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run, (port, ops, front), master = Path(folder) / "run", ports, 0
        honest, *hostile = kit.make_run(run, "ucds/oriented_edges", 1 + SENDERS, recentres=True)
        where = ("--host", f"unix:{run}/labels.sock") if way == NGINX else ("--port", port)
        service, url = stack.enter_context(kit.service(run, *where, "--ops-port", ops))
        place = Place(url)
        if way == NGINX:
            certificate, master = stack.enter_context(kit.nginx(run, front, url))
            trusted = ssl.create_default_context(cafile=certificate)
            place = Place(f"https://localhost:{front}", trusted)
        ask_honestly(place, honest, 3, serials)  # all processes have started
        statuses = FORK.RawArray("b", 600)  # which of them the attacker has seen
        attacker = FORK.Process(target=attack, args=(place, hostile, name, statuses), daemon=True)
        attacker.start()
        health = kit.client_of(f"http://127.0.0.1:{ops}", "")
        health.headers, health.timeout = httpx.Headers({"Connection": "close"}), httpx.Timeout(10)
        process = psutil.Process(service.pid)
        with (
            beside(0.05, lambda: ask_health(health)) as figures.health,
            beside(1, lambda: read_memory(process)) as figures.memory,
            beside(0.1, lambda: len(kit.files_with_a_body(master))) as figures.kept,
        ):
            time.sleep(1)
            for _ in range(WINDOWS):
                times, failures = ask_honestly(place, honest, WINDOW_SECONDS, serials)
                figures.windows.append(times)
                figures.failures += failures
        begun = time.monotonic()
        figures.statuses = [status for status, seen in enumerate(statuses) if seen and status]
        service.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(LONGEST_END)
            figures.end = time.monotonic() - begun
        service.kill()
        attacker.kill()
        attacker.join()
    return figures


TOP = (
    "# The label service under hostile clients\n\n"
    "Made by `python benchmarks/hostile.py`; not edited by hand. Times are in seconds: of the p99 the "
    "median over the windows, of `/healthz` the worst. Status 204 stands for an answer without a label. "
    "Attackers and the honest client have addresses of their own and the same processors, the attackers at "
    f"the lowest priority. Targets: p99 at most {SECONDS} s and {TIMES_ALONE:g} times that with nobody else, "
    f"`/healthz` at most {HEALTH_SECONDS} s, the end within {END_SECONDS:g} s, at most {MEMORY_MIB} MiB, "
    "no honest request failed, and no byte of a body on nginx's disk.\n"
)


def row(name: str, found: Figures, alone: float) -> Row:
    """One line of the record."""
    return {
        "attack": name,
        "median": f"{statistics.median(found.times):.2f}",
        "p99": f"{found.p99:.2f}",
        "p99 to alone": f"{found.p99 / alone:.1f}",
        "failed": f"{found.failures} of {len(found.times)}",
        "slowest `/healthz`": f"{max(found.health):.2f}",
        "memory, MiB": f"{max(found.memory, default=0):.0f}",
        "end after SIGTERM": f"{found.end:.1f}",
        "hostile statuses": ", ".join(map(str, found.statuses)) or "-",
        "targets": "; ".join(found.misses(name, alone)) or "met",
    }


def section(way: str) -> str:
    """Measure all attacks, through nginx or on the service alone, and write their table."""
    rows, alone = list[Row](), 0.0
    for name in ATTACKS[way]:
        found = measure(name, way)
        alone = alone or float(np.quantile(found.times, 0.99))
        rows.append(row(name, found, alone))
        print(rows[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
    machine = (
        f"{WINDOWS} windows of {WINDOW_SECONDS} s; torch {torch.__version__}, Python "
        f"{platform.python_version()}, {os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} "
        "at the end."
    )
    return f"\n## {way}\n\n{machine}\n\n{table(rows, 'lrrrrrrrll')}\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(TOP + "".join(map(section, ATTACKS)))
