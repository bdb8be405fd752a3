"""The label service under hostile clients: what an honest client notices, through nginx and alone.

For each attack a service (`ucds serve`, SQLite ledger) runs as a process of its own with a light model, so
that decoding, which is attacked, counts in full; before it nginx with `deploy/nginx.conf`, unless --way alone
asks for the service itself. One key asks honestly, one image a request, from the address 127.0.0.1: first
alone; then an attacker begins at 127.0.0.2, and the honest one goes on. Meanwhile the operator's port is
asked for `/healthz` each 50 ms on a new connection, and another process reads the memory of the service with
those that decode. At the end of the attack SIGTERM is sent.

    python benchmarks/hostile.py [--seconds S] [--runs N] [--way nginx|alone] [--only WORD,..] [--out FILE]
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
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Literal

import hostile_files
import numpy as np
import torch

import serving
from ucds.serving.ledger import Ledger

HERE = Path(__file__).resolve().parent
LONGEST_END, SENDERS, CALIBRATED = 25, 6, 32
HONEST, HOSTILE = "127.0.0.1", "127.0.0.2"
FILES: dict[str, Callable[[], bytes]] = {
    "JPEG 2000, 719 bytes": hostile_files.slow_jpeg2000,
    "JPEG of 10,000 scans": hostile_files.many_scans,
    "JPEG of fill bytes, 16 MiB": hostile_files.fill_bytes,
    "PPM comment, 1 MiB": hostile_files.comments,
    "TIFF tile of 900 megapixels": hostile_files.large_tile,
    "WebP of 33 megapixels": hostile_files.large_webp,
    "BMP of short runs, 16 MB": hostile_files.slow_bmp,
}
SLOW, WRONG, IDLE = "128 slow bodies", "800 slow bodies with wrong keys", "512 idle connections"
LEFT, CALIBRATIONS = "abandoned requests", "abandoned calibrations"
ATTACKS = (*FILES, SLOW, WRONG, IDLE, LEFT, CALIBRATIONS)
ALONE = (*FILES, SLOW, LEFT, CALIBRATIONS)  # connections and floods are the proxy's work
Way = Literal["nginx", "alone"]


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

    alone: list[float] = field(default_factory=list)
    attacked: list[float] = field(default_factory=list)
    failures: int = 0
    health: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    hostile: set[int] = field(default_factory=set)
    stop: float = float("nan")


def head_of(path: str, key: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def body_of(images: list[bytes]) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="i"\r\n\r\n'
    return b"".join(head + image + b"\r\n" for image in images) + b"--b--\r\n"


class Client:
    """One connection that sends images and reads their labels."""

    def __init__(self, place: Place, key: str, address: str) -> None:
        self._socket, self._key = place.connect(address), key

    def ask(self, images: list[bytes], path: str = "/v1/labels") -> int:
        """Send images: the status of the answer, 204 where an image got no label."""
        body = body_of(images)
        self._socket.sendall(head_of(path, self._key, len(body)) + body)
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        content = json.loads(answer.read())
        return 204 if None in content.get("labels", ()) else answer.status

    def leave(self, images: list[bytes], path: str) -> None:
        """Send images, and go before the answer."""
        body = body_of(images)
        self._socket.sendall(head_of(path, self._key, len(body)) + body)
        time.sleep(0.1)
        self._socket.close()


def ask_honestly(place: Place, key: str, seconds: float, times: list[float], serials: Iterator[int]) -> int:
    """Ask one image after the other: the number of questions without an answer."""
    images, failures = serving.make_images(1), 0
    end, client = time.monotonic() + seconds, None
    while (begun := time.monotonic()) < end:
        try:
            client = client or Client(place, key, HONEST)
            good = client.ask(serving.fresh(images, serials)) == 200
        except (OSError, ValueError, http.client.HTTPException):
            good = False
        if not good:
            failures, client = failures + 1, None
            time.sleep(0.05)
        times.append(time.monotonic() - begun)
    return failures


def attack(place: Place, keys: list[str], name: str, statuses: multiprocessing.SimpleQueue[int]) -> None:
    """Begin all that belongs to an attack, and go on until the process is killed."""
    if name in FILES:
        data = FILES[name]()
        work: list[Callable[[], None]] = [lambda: _send_files(place, keys[0], data, statuses)] * SENDERS
    elif name in (SLOW, WRONG, IDLE):
        key, words = ("ucds_wrong" if name == WRONG else keys[0]), b"" if name == IDLE else None
        work = [lambda: _hold(place, key, words)] * int(name.split()[0])
    elif name == LEFT:
        work = [lambda: _leave(place, keys[0], "/v1/labels")] * SENDERS
    else:  # a key can be calibrated once
        work = [lambda key=key: _leave(place, key, "/v1/calibration") for key in keys]  # type: ignore[misc]
    for one in work:
        threading.Thread(target=one).start()


def _send_files(place: Place, key: str, data: bytes, statuses: multiprocessing.SimpleQueue[int]) -> None:
    """Send a file again and again, each time as a new one, whatever `Retry-After` says."""
    for number in itertools.count():
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            mark = f"{threading.get_ident()} {number}".encode()
            statuses.put(Client(place, key, HOSTILE).ask([data + mark]))
        time.sleep(0.05)


def _hold(place: Place, key: str, words: bytes | None) -> None:
    """Hold a connection: without a word, or with a body that comes at one byte a second."""
    begin = head_of("/v1/labels", key, 100_000) + body_of([b""])[:60] if words is None else words
    while True:
        with contextlib.suppress(OSError), place.connect(HOSTILE) as connection:
            connection.sendall(begin)
            while begin:
                time.sleep(1)
                connection.sendall(b"x")
            connection.recv(1)
        time.sleep(0.2)


def _leave(place: Place, key: str, path: str) -> None:
    """Ask about new images and leave, again and again."""
    images = serving.make_images(CALIBRATED)
    for number in itertools.count():
        with contextlib.suppress(OSError):
            mark = f"{threading.get_ident()} {number}".encode()
            fresh = [image + mark for image in images]
            Client(place, key, HOSTILE).leave(fresh, path)


@contextlib.contextmanager
def beside(work: Callable[..., list[float]], *arguments: object) -> Iterator[list[float]]:
    """Measure in a process of its own while the block runs; the list has the values afterwards."""
    fork = multiprocessing.get_context("fork")
    over, (receiving, sending) = fork.Event(), fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: sending.send(work(*arguments, over)), daemon=True)
    process.start()
    found: list[float] = []
    try:
        yield found
    finally:
        over.set()
        found += receiving.recv()
        process.join()


def ask_health(port: int, over: Event) -> list[float]:
    """Ask for the health of the service: seconds of each answer, infinite where there was none."""
    times = []
    while not over.wait(0.05):
        begun = time.monotonic()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/healthz")
            good = connection.getresponse().status == 200
            connection.close()
        except (OSError, http.client.HTTPException):
            good = False
        times.append(time.monotonic() - begun if good else float("inf"))
    return times


def read_memory(pid: int, over: Event) -> list[float]:
    """Read the memory of a process and its children once a second, in MiB; shared pages count once."""
    found = []
    while not over.wait(1):
        numbers, total = [pid], 0.0
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                numbers += [int(number) for number in children.read_text().split()]
        for number in numbers:
            with contextlib.suppress(OSError):
                pages = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{number}/smaps_rollup").read_text())
                total += int(pages[1]) / 1024 if pages else 0.0
        found.append(total)
    return found


@contextlib.contextmanager
def running(run: Path, way: Way) -> Iterator[tuple[subprocess.Popen[str], Place, int]]:
    """Start the service, and nginx before it: the process, where clients ask, and the operator's port."""
    port, ops = free_port(), free_port()
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", str(port), "--ops-port", str(ops)]
    command += ["--accelerator", "cpu", "--behind-proxy", "127.0.0.1"]
    with contextlib.ExitStack() as stack:
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        stack.callback(service.wait)
        stack.callback(service.kill)
        assert service.stdout is not None
        service.stdout.readline()
        place = stack.enter_context(nginx(run, port)) if way == "nginx" else Place(port)
        yield service, place, ops


@contextlib.contextmanager
def nginx(folder: Path, service: int) -> Iterator[Place]:
    """Run nginx with the file of `deploy/`, whose names and places alone are changed."""
    port, certificate = free_port(), folder / "localhost.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    request += ["-addext", "subjectAltName=DNS:localhost", "-keyout", f"{certificate}.key"]
    subprocess.run(["openssl", *request, "-out", str(certificate)], check=True, capture_output=True)
    text = (HERE.parent / "deploy" / "nginx.conf").read_text()
    for old, new in {
        "user www-data;": "user root;" if os.geteuid() == 0 else "",
        "error_log syslog:server=unix:/dev/log warn;": f"error_log {folder}/nginx.log crit;",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "labels.example.org": "localhost",
        "/etc/ssl/labels.pem": str(certificate),
        "/etc/ssl/private/labels.key": f"{certificate}.key",
        "127.0.0.1:8000": f"127.0.0.1:{service}",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    options = ["-p", folder, "-c", folder / "nginx.conf", "-g", f"daemon off; pid {folder}/nginx.pid;"]
    process = subprocess.Popen([program, *map(str, options)])
    place = Place(port, certificate)
    try:
        while True:
            with contextlib.suppress(OSError), place.connect(HONEST):
                break
            time.sleep(0.1)
        yield place
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def measure(name: str, way: Way, seconds: float) -> Figures:
    """One attack on a fresh service."""
    figures, serials = Figures(), itertools.count()
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        run = serving.make_run(Path(folder) / "run", "ucds/oriented_edges", recentres=True)
        ledger = Ledger(run, create=True)
        honest, *hostile = (ledger.add_key(f"key{i}", 10**9) for i in range(1 + SENDERS))
        ledger.close()
        with running(run, way) as (process, place, ops):
            ask_honestly(place, honest, 3, [], serials)  # all processes have started
            ask_honestly(place, honest, seconds, figures.alone, serials)
            statuses: multiprocessing.SimpleQueue[int] = fork.SimpleQueue()
            attacker = fork.Process(target=attack, args=(place, hostile, name, statuses), daemon=True)
            drained = threading.Thread(target=_drain, args=(statuses, figures.hostile), daemon=True)
            attacker.start()
            drained.start()
            with (
                beside(ask_health, ops) as figures.health,
                beside(read_memory, process.pid) as figures.memory,
            ):
                time.sleep(1)
                figures.failures = ask_honestly(place, honest, seconds, figures.attacked, serials)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LONGEST_END)
                figures.stop = time.monotonic() - begun
            attacker.kill()
            attacker.join()
    return figures


def _drain(statuses: multiprocessing.SimpleQueue[int], seen: set[int]) -> None:
    while True:
        seen.add(statuses.get())


HEAD = [
    "| attack | alone, median | alone, p99 | attacked, median | attacked, p99 | ratio of p99 | failed "
    "| slowest `/healthz` | memory, MiB | end after SIGTERM | hostile statuses |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
]


def row(name: str, runs: list[Figures]) -> str:
    """One line of the record: medians over the runs, and the worst of what must never be."""
    before = statistics.median(float(np.quantile(one.alone, 0.99)) for one in runs)
    after = statistics.median(float(np.quantile(one.attacked, 0.99)) for one in runs)
    middles = [
        statistics.median(chain.from_iterable(times))
        for times in ([one.alone for one in runs], [one.attacked for one in runs])
    ]
    failed, asked = sum(one.failures for one in runs), sum(len(one.attacked) for one in runs)
    health, memory = max(max(one.health) for one in runs), max(max(one.memory, default=0) for one in runs)
    stop = max(one.stop if one.stop == one.stop else LONGEST_END for one in runs)
    statuses = ", ".join(map(str, sorted(set().union(*(one.hostile for one in runs))))) or "-"
    return (
        f"| {name} | {middles[0]:.2f} | {before:.2f} | {middles[1]:.2f} | {after:.2f} | {after / before:.1f} "
        f"| {failed} of {asked} | {health:.2f} | {memory:.0f} | {stop:.1f} | {statuses} |"
    )


def write(out: Path, way: Way, line: str, seconds: float, runs: int) -> None:
    """Put a row into the part of its way, and keep the other rows and the other part."""
    parts: dict[str, str] = {}
    if out.exists():
        for text in out.read_text().split("\n## ")[1:]:
            parts[text.partition("\n")[0].split(" ")[-1].lower()] = text
    lines = [*parts.get(way, "").split("\n"), line]
    rows = {found.split(" | ")[0]: found for found in lines if found.startswith("| ")}
    kept = [rows[f"| {name}"] for name in ATTACKS if f"| {name}" in rows]
    machine = (
        f"{runs} runs of {seconds:g} s alone and {seconds:g} s under attack; torch {torch.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors, load average "
        f"{os.getloadavg()[0]:.1f} at the end."
    )
    title = {"nginx": "Through nginx", "alone": "The service alone"}[way]
    parts[way] = "\n".join([title, "", machine, "", *HEAD, *kept]) + "\n"
    top = [
        "# The label service under hostile clients",
        "",
        "Made by `python benchmarks/hostile.py`; not edited by hand. Times are in seconds: medians over the "
        "runs, and of `/healthz` and the end the worst. Status 204 stands for an answer without a label. "
        "Attackers and the honest client ask from addresses of their own, and take their share of the same "
        "processors.",
        "",
    ]
    texts = [f"## {parts[name]}" for name in ("nginx", "alone") if name in parts]
    out.write_text("\n".join(top) + "\n" + "\n".join(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--way", choices=("nginx", "alone"), default="nginx")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=HERE / "hostile.md")
    options = parser.parse_args()
    for name in ATTACKS if options.way == "nginx" else ALONE:
        if options.only and not any(word in name for word in options.only.split(",")):
            continue
        runs = [measure(name, options.way, options.seconds) for _ in range(options.runs)]
        line = row(name, runs)
        print(line, f"load {os.getloadavg()[0]:.1f}", flush=True)
        write(options.out, options.way, line, options.seconds, options.runs)


if __name__ == "__main__":
    main()
