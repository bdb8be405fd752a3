"""The label service under hostile clients: what an honest client notices.

For each attack, a service (`ucds serve`, SQLite ledger) runs as a process of its own on loopback, with a
light model, so that decoding, which is attacked, counts in full. One key asks honestly, one image a request,
at first alone; then another key attacks, and the honest one goes on. Meanwhile two processes ask for
`/healthz` each 50 ms on a new connection, at the service's address and at its port for health alone
(`--health-port`), and another one reads the memory of the service with its decoding processes, once a second
only, because each reading holds up the service. At the end of the attack, while hostile work is under way,
SIGTERM is sent. With --package DIR, the service of another checkout is measured; --part names the part of
the record that is rewritten.

    python benchmarks/hostile.py [--seconds S] [--package DIR] [--part before|after] [--only WORD,..]
                                 [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import multiprocessing
import multiprocessing.queues
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import hostile_files
import numpy as np
import torch

import serving

HERE = Path(__file__).resolve().parent
LONGEST_END = 25
SENDERS = 6
SLOW_BODIES = 128
IDLE_CONNECTIONS = 512
FILES: dict[str, Callable[[], bytes]] = {
    "JPEG 2000, 719 bytes": hostile_files.slow_jpeg2000,
    "JPEG of 10,000 scans": hostile_files.many_scans,
    "JPEG of fill bytes, 16 MiB": hostile_files.fill_bytes,
    "PPM comment, 1 MiB": hostile_files.comments,
    "TIFF tile of 900 megapixels": hostile_files.large_tile,
    "WebP of 33 megapixels": hostile_files.large_webp,
    "BMP of short runs, 16 MB": hostile_files.slow_bmp,
}
_PREPARE = """
import pathlib, sys, serving
run = serving.make_run(pathlib.Path(sys.argv[1]), "ucds/oriented_edges")
ledger = serving.Ledger(run)
print(ledger.add_key("honest", 10**9), ledger.add_key("hostile", 10**9))
"""
Statuses = multiprocessing.queues.SimpleQueue[int]
SLOW, IDLE = f"{SLOW_BODIES} slow bodies", f"{IDLE_CONNECTIONS} idle connections"


@dataclass
class Figures:
    """What was seen of one attack; times in seconds, memory in MiB."""

    attack: str
    alone: list[float] = field(default_factory=list)
    attacked: list[float] = field(default_factory=list)
    failures: int = 0
    health: list[float] = field(default_factory=list)
    health_apart: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    hostile_statuses: set[int] = field(default_factory=set)
    stop: float = float("nan")


def measure(attack: str, data: bytes | None, seconds: float, package: Path) -> Figures:
    """One attack on a fresh service."""
    figures, images = Figures(attack), serving.make_images(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        honest, hostile = _python(package, _PREPARE, str(run)).split()
        with _service(run, package) as (process, url, health):
            serials = itertools.count()
            ask = serving.Connection(url, honest).ask
            ask(serving.fresh(images, serials))
            _honest(url, honest, images, serials, seconds, figures.alone, figures)
            figures.failures = 0
            with _attacker(url, hostile, data, attack) as statuses:
                with (
                    _beside(_ask_health, url) as figures.health,
                    _beside(_ask_health, health) as figures.health_apart,
                    _beside(_read_memory, process.pid) as figures.memory,
                ):
                    time.sleep(1)
                    _honest(url, honest, images, serials, seconds, figures.attacked, figures)
                begun = time.monotonic()
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LONGEST_END)
                    figures.stop = time.monotonic() - begun
            while not statuses.empty():
                figures.hostile_statuses.add(statuses.get())
    return figures


def _honest(
    url: str,
    key: str,
    images: list[bytes],
    serials: Iterator[int],
    seconds: float,
    times: list[float],
    figures: Figures,
) -> None:
    """Ask one image after the other; a question without an answer counts as a failure."""
    end, connection = time.monotonic() + seconds, None
    while (begun := time.monotonic()) < end:
        try:
            connection = connection or serving.Connection(url, key)
            connection.ask(serving.fresh(images, serials))
        except (RuntimeError, OSError, ValueError, http.client.HTTPException):
            figures.failures, connection = figures.failures + 1, None
            time.sleep(0.05)
        times.append(time.monotonic() - begun)


@contextlib.contextmanager
def _attacker(url: str, key: str, data: bytes | None, attack: str) -> Iterator[Statuses]:
    """Attack in a process of its own, whose threads do not hold up the honest client's; give its statuses."""
    fork = multiprocessing.get_context("fork")
    statuses: Statuses = fork.SimpleQueue()
    process = fork.Process(target=_attack, args=(url, key, data, attack, statuses), daemon=True)
    process.start()
    try:
        yield statuses
    finally:
        process.kill()
        process.join()


def _attack(url: str, key: str, data: bytes | None, attack: str, statuses: Statuses) -> None:
    """Begin all that belongs to an attack, and go on until the process is killed."""
    if data is not None:
        seen: set[int] = set()
        threads = [
            threading.Thread(target=_send_files, args=(url, key, data, i, seen, statuses))
            for i in range(SENDERS)
        ]
    else:
        work, count = (_hold_body, SLOW_BODIES) if attack == SLOW else (_hold_connection, IDLE_CONNECTIONS)
        threads = [threading.Thread(target=work, args=(url, key)) for _ in range(count)]
    for thread in threads:
        thread.start()


def _send_files(url: str, key: str, data: bytes, sender: int, seen: set[int], statuses: Statuses) -> None:
    """Send a file again and again, each time as a new one; a refusal with Retry-After is not waited for."""
    for number in itertools.count():
        try:
            serving.Connection(url, key).ask([data + f"{sender} {number}".encode()])
        except RuntimeError as error:
            status = int(str(error)[:3])
            if status not in seen:
                statuses.put(status)
            seen.add(status)
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the connection was closed; try again
        time.sleep(0.05)


def _connect(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 80), timeout=60)


def _hold_body(url: str, key: str) -> None:
    """Send an image one byte a second; begin again when the service closes the connection."""
    head = (
        f"POST /v1/labels HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    )
    while True:
        with contextlib.suppress(OSError), _connect(url) as connection:
            connection.sendall(head.encode())
            while True:
                time.sleep(1)
                connection.sendall(b"x")


def _hold_connection(url: str, key: str) -> None:
    """Open a connection and say nothing; open another one when the service closes it."""
    while True:
        with contextlib.suppress(OSError), _connect(url) as connection:
            connection.recv(1)
        time.sleep(0.2)


@contextlib.contextmanager
def _beside(work: Callable[..., list[float]], *arguments: object) -> Iterator[list[float]]:
    """Measure in a process of its own while the block runs; the list has the values afterwards."""
    fork = multiprocessing.get_context("fork")
    over, (receiving, sending) = fork.Event(), fork.Pipe(duplex=False)

    def send() -> None:
        sending.send(work(*arguments, over))

    process, found = fork.Process(target=send, daemon=True), list[float]()
    process.start()
    try:
        yield found
    finally:
        over.set()
        found += receiving.recv()
        process.join()


def _ask_health(url: str, over: Event) -> list[float]:
    """Ask for the service's health until the event: seconds of each answer, infinite where there was none."""
    times = []
    while not over.wait(0.05):
        begun = time.monotonic()
        try:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
            connection.request("GET", "/healthz")
            good = connection.getresponse().status == 200
            connection.close()
        except (OSError, http.client.HTTPException):
            good = False
        times.append(time.monotonic() - begun if good else float("inf"))
    return times


def _read_memory(pid: int, over: Event) -> list[float]:
    """Read the memory of a process and its children, in MiB, once a second until the event."""
    found = []
    while not over.wait(1):
        found.append(_memory(pid))
    return found


def _memory(pid: int) -> float:
    """Memory in MiB of a process and its children; pages that they share count once."""
    total = 0.0
    numbers = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            numbers += [int(number) for number in children.read_text().split()]
    for number in numbers:
        with contextlib.suppress(OSError):
            found = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{number}/smaps_rollup").read_text())
            total += int(found[1]) / 1024 if found else 0.0
    return total


def _environment(package: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{package / 'src'}{os.pathsep}{package / 'benchmarks'}"}


def _python(package: Path, program: str, *arguments: str) -> str:
    """Run a program with a checkout's package: what it prints."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=_environment(package), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@contextlib.contextmanager
def _service(run: Path, package: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start the service: its process, its address, and that for health, the same in revisions without one."""
    apart = "health_port" in (package / "src" / "ucds" / "cli" / "serving.py").read_text()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--accelerator", "cpu"]
    command += ["--health-port", str(port)] if apart else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(package))
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("listening on ").strip()
        yield process, url, f"http://127.0.0.1:{port}" if apart else url
    finally:
        process.kill()
        process.wait()


def _slowest(times: list[float]) -> str:
    """The longest of some times in words, and how many of them were infinite."""
    lost = sum(value == float("inf") for value in times)
    answered = [value for value in times if value != float("inf")] or [float("nan")]
    return f"{max(answered):.2f}" + (f", {lost} of {len(times)} refused" if lost else "")


def row(figures: Figures) -> str:
    """One line of the record."""
    before, after = (float(np.quantile(times, 0.99)) for times in (figures.alone, figures.attacked))
    stop = f"{figures.stop:.1f}" if figures.stop == figures.stop else f"over {LONGEST_END}"
    health, apart = _slowest(figures.health), _slowest(figures.health_apart)
    statuses = ", ".join(map(str, sorted(figures.hostile_statuses))) or "-"
    return (
        f"| {figures.attack} | {statistics.median(figures.alone):.2f} | {before:.2f} "
        f"| {statistics.median(figures.attacked):.2f} | {after:.2f} | {after / before:.1f} "
        f"| {figures.failures} of {len(figures.attacked)} | {health} | {apart} "
        f"| {max(figures.memory, default=float('nan')):.0f} | {stop} | {statuses} |"
    )


HEAD = [
    "| attack | alone, median | alone, p99 | attacked, median | attacked, p99 | ratio of p99 | failed "
    "| slowest `/healthz` | on its own port | memory, MiB | end after SIGTERM | hostile statuses |",
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
]


def write(out: Path, part: str, row: str, seconds: float) -> None:
    """Put a row into one part of the record, and keep the other rows and the other part."""
    parts: dict[str, str] = {}
    if out.exists():
        for text in out.read_text().split("\n## ")[1:]:
            parts[text.partition("\n")[0].split(" ")[0].lower()] = "## " + text.strip()
    rows = {line.split(" | ")[0]: line for line in [*parts.get(part, "").split("\n"), row]}
    kept = [rows[f"| {attack}"] for attack in (*FILES, SLOW, IDLE) if f"| {attack}" in rows]
    machine = (
        f"{seconds:g} s alone and {seconds:g} s under attack; torch {torch.__version__}, "
        f"Python {platform.python_version()}, {os.cpu_count()} processors, niceness {os.nice(0)}, "
        f"load average {os.getloadavg()[0]:.1f} at the end."
    )
    titles = {"before": "Before (revision 5e8af11)", "after": "After"}
    parts[part] = "\n".join([f"## {titles[part]}", "", machine, "", *HEAD, *kept])
    lines = [
        "# The label service under hostile clients",
        "",
        "Made by `python benchmarks/hostile.py`; not edited by hand. Times are in seconds; memory is the "
        "largest sum of the service and its decoding processes, read once a second. The honest client, the "
        "attacker, the two who ask for `/healthz` and the one who reads the memory are processes of their "
        "own.",
        "",
        "One key asks for one image after the other, alone, and then as long under attack. "
        f"{SENDERS} senders of another key send the file again and again, never waiting as they are told; "
        f"or it holds {SLOW}, or {IDLE}. The attacker and the honest client take their share of the same "
        "processors. Of 150 requests the p99 is nearly the slowest, of 500 the fifth. "
        "A revision that has no port for health alone is asked at its address in both columns.",
        "",
        *("\n" + parts[name] + "\n" for name in ("after", "before") if name in parts),
    ]
    out.write_text("\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--package", type=Path, default=HERE.parent)
    parser.add_argument("--part", choices=("before", "after"), default="after")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=HERE / "hostile.md")
    options = parser.parse_args()
    for attack in (*FILES, SLOW, IDLE):
        if options.only and not any(word in attack for word in options.only.split(",")):
            continue
        data = FILES[attack]() if attack in FILES else None
        found = row(measure(attack, data, options.seconds, options.package))
        print(found, f"load {os.getloadavg()[0]:.1f}", flush=True)
        write(options.out, options.part, found, options.seconds)


if __name__ == "__main__":
    main()
