"""The label service under hostile clients: what an honest client notices, through nginx and alone.

For each attack a service (`ucds serve`, SQLite ledger) runs as a process of its own with a light model, so
that decoding, which is attacked, counts in full; before it nginx with `deploy/nginx.conf`, unless --way alone
asks for the service itself. One key asks honestly, one image a request, from the address 127.0.0.1: in the
first row alone, in the others while an attacker works at 127.0.0.2. Meanwhile other processes ask the
operator's port for `/healthz` each 50 ms on a new connection, read the memory of the service with those that
decode, and look into the open files of nginx. At the end of the attack SIGTERM is sent.

    python benchmarks/hostile.py [--seconds S] [--way nginx|alone] [--only WORD,..] [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import platform
import re
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
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal

import hostile_files
import numpy as np
import torch
from behind_nginx import files_with_a_body, nginx

import serving
from ucds.serving.ledger import Ledger

HERE = Path(__file__).resolve().parent
WINDOWS, LONGEST_END, SENDERS, CALIBRATED = 3, 25, 6, 32
HONEST, HOSTILE = "127.0.0.1", "127.0.0.2"
SECONDS, TIMES_ALONE, HEALTH_SECONDS, END_SECONDS, MEMORY_MIB = 0.25, 2.0, 0.2, 14.0, 2048
FILES: dict[str, Callable[[], bytes]] = {
    "JPEG 2000, 719 bytes": hostile_files.slow_jpeg2000,
    "JPEG of 10,000 scans": hostile_files.many_scans,
    "JPEG of fill bytes, 16 MiB": hostile_files.fill_bytes,
    "PPM comment, 1 MiB": hostile_files.comments,
    "TIFF tile of 900 megapixels": hostile_files.large_tile,
    "WebP of 33 megapixels": hostile_files.large_webp,
    "BMP of short runs, 16 MB": hostile_files.slow_bmp,
}
NOBODY = "nobody"
SLOW, WRONG, IDLE = "128 slow bodies", "800 slow bodies with wrong keys", "512 idle connections"
UPLOADS = "uploads of 64 MiB with wrong keys"
LEFT, CALIBRATIONS = "abandoned requests", "abandoned calibrations"
Way = Literal["nginx", "alone"]
ATTACKS: dict[Way, tuple[str, ...]] = {
    "nginx": (NOBODY, *FILES, SLOW, WRONG, IDLE, UPLOADS, LEFT, CALIBRATIONS),
    "alone": (NOBODY, *FILES, SLOW, UPLOADS, LEFT, CALIBRATIONS),  # connections are the proxy's work
}


@dataclass(frozen=True)
class Place:
    """Where clients ask: a port of this machine, and the certificate of a proxy."""

    port: int
    certificate: Path | None = None

    def connect(self, address: str) -> socket.socket:
        """Open a connection from an address of this machine."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(address, 0))
        if self.certificate is None:
            return plain
        trusted = ssl.create_default_context(cafile=self.certificate)
        return trusted.wrap_socket(plain, server_hostname="localhost")


@dataclass
class Figures:
    """What was seen of one attack; times in seconds, memory in MiB."""

    windows: list[list[float]] = field(default_factory=list)
    failures: int = 0
    health: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    end: float = float("inf")

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
            "a refusal did not arrive as 401": name == UPLOADS and self.statuses != {401},
        }
        return [words for words, missed in told.items() if missed]


def head_of(path: str, key: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def body_of(images: list[bytes]) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="i"\r\n\r\n'
    return b"".join(head + image + b"\r\n" for image in images) + b"--b--\r\n"


def ask(connection: socket.socket, key: str, images: list[bytes]) -> int:
    """Send images: the status of the answer, 204 where an image got no label."""
    body = body_of(images)
    with contextlib.suppress(ConnectionError):  # an answer may come before the body has gone
        connection.sendall(head_of("/v1/labels", key, len(body)) + body)
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return 204 if None in json.loads(answer.read()).get("labels", ()) else answer.status


def ask_honestly(place: Place, key: str, seconds: float, serials: Iterator[int]) -> tuple[list[float], int]:
    """Ask one image after the other: the time of each answer, and the number of failures."""
    images, failures, times = serving.make_images(1), 0, list[float]()
    end, connection = time.monotonic() + seconds, None
    while (begun := time.monotonic()) < end:
        try:
            connection = connection or place.connect(HONEST)
            good = ask(connection, key, serving.fresh(images, serials)) == 200
        except (OSError, ValueError, http.client.HTTPException):
            good = False
        if not good:
            failures, connection = failures + 1, None
            time.sleep(0.05)
        times.append(time.monotonic() - begun)
    return times, failures


def attack(place: Place, keys: list[str], name: str, statuses: multiprocessing.SimpleQueue[int]) -> None:
    """Begin all that belongs to an attack, and go on until the process is killed."""
    work: list[Callable[[], None]] = []
    if name in FILES:
        data = FILES[name]()
        work = [lambda: _send_files(place, keys[0], data, statuses)] * SENDERS
    elif name == UPLOADS:
        zeros = bytes(64 * 2**20 - 4096)
        work = [lambda: _send_files(place, "ucds_wrong", zeros, statuses)] * SENDERS
    elif name in (SLOW, WRONG, IDLE):
        key = "ucds_wrong" if name == WRONG else keys[0]
        work = [lambda: _hold(place, key, name == IDLE)] * int(name.split()[0])
    elif name == LEFT:
        work = [lambda: _leave(place, keys[0], "/v1/labels")] * SENDERS
    elif name == CALIBRATIONS:  # a key can be calibrated once
        work = [lambda key=key: _leave(place, key, "/v1/calibration") for key in keys]  # type: ignore[misc]
    for one in work:
        threading.Thread(target=one).start()


def _send_files(place: Place, key: str, data: bytes, statuses: multiprocessing.SimpleQueue[int]) -> None:
    """Send a file again and again, each time as a new one, whatever `Retry-After` says."""
    for number in itertools.count():
        mark = f"{threading.get_ident()} {number}".encode()
        with (
            contextlib.suppress(OSError, ValueError, http.client.HTTPException),
            place.connect(HOSTILE) as connection,
        ):
            statuses.put(ask(connection, key, [data + mark]))
        time.sleep(0.05)


def _hold(place: Place, key: str, idle: bool) -> None:
    """Hold a connection: without a word, or with a body that comes at one byte a second."""
    begin = b"" if idle else head_of("/v1/labels", key, 100_000) + body_of([b""])[:60]
    while True:
        with contextlib.suppress(OSError), place.connect(HOSTILE) as connection:
            connection.sendall(begin)
            while begin:
                time.sleep(1)
                connection.sendall(b"x")
            connection.recv(1)
        time.sleep(0.2)


def _leave(place: Place, key: str, path: str) -> None:
    """Ask about new images and leave before the answer, again and again."""
    images = serving.make_images(CALIBRATED)
    for number in itertools.count():
        mark = f"{threading.get_ident()} {number}".encode()
        body = body_of([image + mark for image in images])
        with contextlib.suppress(OSError), place.connect(HOSTILE) as connection:
            connection.sendall(head_of(path, key, len(body)) + body)
            time.sleep(0.1)


@contextlib.contextmanager
def beside(seconds: float, look: Callable[[int], float], at: int) -> Iterator[list[float]]:
    """Measure every so many seconds in a process of its own; the list has the values afterwards."""
    fork = multiprocessing.get_context("fork")
    over, (receiving, sending) = fork.Event(), fork.Pipe(duplex=False)

    def work(over: Event) -> None:
        values = []
        while not over.wait(seconds):
            values.append(look(at))
        sending.send(values)

    process = fork.Process(target=work, args=(over,), daemon=True)
    process.start()
    found: list[float] = []
    try:
        yield found
    finally:
        over.set()
        found += receiving.recv()
        process.join()


def ask_health(port: int) -> float:
    """Seconds until the service tells its health; infinite where it does not."""
    begun = time.monotonic()
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        good = connection.getresponse().status == 200
        connection.close()
        return time.monotonic() - begun if good else float("inf")
    return float("inf")


def read_memory(pid: int) -> float:
    """Memory of a process and its children in MiB; shared pages count once."""
    numbers, total = [pid], 0.0
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            numbers += [int(number) for number in children.read_text().split()]
    for number in numbers:
        with contextlib.suppress(OSError):
            pages = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{number}/smaps_rollup").read_text())
            total += int(pages[1]) / 1024 if pages else 0.0
    return total


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def measure(name: str, way: Way, seconds: float) -> Figures:
    """One attack on a fresh service, over some windows of time."""
    figures, serials, fork = Figures(), itertools.count(), multiprocessing.get_context("fork")
    port, ops = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run = serving.make_run(Path(folder) / "run", "ucds/oriented_edges", recentres=True)
        ledger = Ledger(run, create=True)
        honest, *hostile = (ledger.add_key(f"key{i}", 10**9) for i in range(1 + SENDERS))
        ledger.close()
        options: list[Any] = ["--port", port, "--ops-port", ops, "--behind-proxy", "127.0.0.1"]
        service = stack.enter_context(serving.service(run, *map(str, options)))[0]
        place, master = Place(port), 0
        if way == "nginx":
            place = Place(free_port())
            certificate, master = stack.enter_context(nginx(run, place.port, f"127.0.0.1:{port}"))
            place = Place(place.port, certificate)
        ask_honestly(place, honest, 3, serials)  # all processes have started
        statuses: multiprocessing.SimpleQueue[int] = fork.SimpleQueue()
        attacker = fork.Process(target=attack, args=(place, hostile, name, statuses), daemon=True)
        seen = set[int]()
        threading.Thread(target=_drain, args=(statuses, seen), daemon=True).start()
        attacker.start()
        with (
            beside(0.05, ask_health, ops) as figures.health,
            beside(1, read_memory, service.pid) as figures.memory,
            beside(0.1, lambda pid: len(files_with_a_body(pid)), master) as figures.kept,
        ):
            time.sleep(1)
            for _ in range(WINDOWS):
                times, failures = ask_honestly(place, honest, seconds, serials)
                figures.windows.append(times)
                figures.failures += failures
        begun, figures.statuses = time.monotonic(), set(seen)
        service.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(LONGEST_END)
            figures.end = time.monotonic() - begun
        service.kill()
        attacker.kill()
        attacker.join()
    return figures


def _drain(statuses: multiprocessing.SimpleQueue[int], seen: set[int]) -> None:
    while True:
        seen.add(statuses.get())


HEAD = (
    "| attack | median | p99 | p99 to alone | failed | slowest `/healthz` | memory, MiB "
    "| end after SIGTERM | hostile statuses | targets |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"
)


def row(name: str, found: Figures, alone: float) -> str:
    """One line of the record."""
    times = list(itertools.chain.from_iterable(found.windows))
    statuses = ", ".join(map(str, sorted(found.statuses))) or "-"
    verdict = "; ".join(found.misses(name, alone)) or "met"
    return (
        f"| {name} | {statistics.median(times):.2f} | {found.p99:.2f} | {found.p99 / alone:.1f} "
        f"| {found.failures} of {len(times)} | {max(found.health):.2f} | {max(found.memory, default=0):.0f} "
        f"| {found.end:.1f} | {statuses} | {verdict} |"
    )


def write(out: Path, way: Way, rows: list[str], seconds: float) -> None:
    """Put the rows of a way into the record, and keep the other way's."""
    parts: dict[str, str] = {}
    if out.exists():
        for text in out.read_text().split("\n## ")[1:]:
            parts["alone" if text.startswith("The service") else "nginx"] = text.rstrip() + "\n"
    machine = (
        f"{WINDOWS} windows of {seconds:g} s; torch {torch.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the end."
    )
    title = {"nginx": "Through nginx", "alone": "The service alone"}[way]
    parts[way] = "\n".join([title, "", machine, "", HEAD, *rows]) + "\n"
    top = (
        "# The label service under hostile clients\n\n"
        "Made by `python benchmarks/hostile.py`; not edited by hand. Times are in seconds: of the p99 the "
        "median over the windows, of `/healthz` the worst. Status 204 stands for an answer without a label. "
        "Attackers and the honest client ask from addresses of their own, and take their share of the same "
        f"processors. Targets: p99 at most {SECONDS} s and {TIMES_ALONE:g} times that with nobody else, "
        f"`/healthz` at most {HEALTH_SECONDS} s, the end within {END_SECONDS:g} s, at most {MEMORY_MIB} MiB, "
        "no honest request failed, and no byte of a body on nginx's disk.\n\n"
    )
    out.write_text(top + "\n".join(f"## {parts[name]}" for name in ("nginx", "alone") if name in parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a window")
    parser.add_argument("--way", choices=("nginx", "alone"), default="nginx")
    parser.add_argument("--only", default="", help="words of attacks; all if empty")
    parser.add_argument("--out", type=Path, default=HERE / "hostile.md")
    options = parser.parse_args()
    wanted, rows, alone = options.only.split(","), list[str](), 0.0
    for name in ATTACKS[options.way]:
        if name == NOBODY or any(word in name for word in wanted):
            found = measure(name, options.way, options.seconds)
            alone = alone or float(np.quantile(list(itertools.chain.from_iterable(found.windows)), 0.99))
            rows.append(row(name, found, alone))
            print(rows[-1], f"load {os.getloadavg()[0]:.1f}", flush=True)
            write(options.out, options.way, rows, options.seconds)


if __name__ == "__main__":
    main()
