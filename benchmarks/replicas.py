"""Throughput of the label service in 1, 2 and 4 processes on one PostgreSQL ledger, with exact budgets.

Replicas are services of their own (`ucds serve`) behind nginx, which gives each request to the next one;
workers are the processes of one service (`ucds serve --workers N`), without a proxy. All share one ledger.
Clients with keys of their own ask without a pause, every image new, for a time that begins after a warm-up.
They, the proxy and PostgreSQL take their share of the same processors. Afterwards the ledger's count is
compared with the images that were answered, and all clients at once ask for more images of a key than its
small budget allows.

    python benchmarks/replicas.py [--processes 1,2,4] [--seconds 10] [--out FILE]

It needs PostgreSQL 15 or later and nginx (Debian: `apt-get install postgresql nginx`), and takes some
minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from serving import Connection, fresh, make_images, make_run
from ucds.serving.ledger import Ledger

sys.path.append(str(Path(__file__).parents[1] / "tests" / "serving"))  # for `postgres`

from postgres import postgresql  # type: ignore[import-not-found]

BACKBONES = ("ucds/oriented_edges", "resnet18")
KEYS, CONNECTIONS, PER_REQUEST = 4, 16, 8
WARM_UP = 3.0  # seconds
BUDGET, BEYOND = 200, 320
LARGE = 10**9


@dataclass(frozen=True)
class Row:
    """One arrangement of processes under load.

    Attributes:
        backbone: name of the encoder.
        kind: ``"replicas"`` or ``"workers"``.
        processes: number of processes that answer.
        per_second: images answered a second.
        answered: images answered in all, the warm-up included.
        charged: images that the ledger counts for the same keys.
        within_budget: images answered to a key with a budget of :data:`BUDGET`.
        refused: statuses of the refusals once the budget was used up.
        sound: whether the ledger's audit log verifies.
    """

    backbone: str
    kind: str
    processes: int
    per_second: float
    answered: int
    charged: int
    within_budget: int
    refused: frozenset[int]
    sound: bool


@contextmanager
def serving(run: Path, ledger: str, workers: int, threads: int) -> Iterator[str]:
    """Start one service on a port of its own, and give its address as soon as it answers."""
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--ledger", ledger]
    command += ["--workers", str(workers), "--accelerator", "cpu"]
    own = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait()


@contextmanager
def proxy(urls: list[str], folder: Path) -> Iterator[str]:
    """Start nginx before some services, with what matters of ``deploy/nginx.conf``, and without TLS."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.mkdir()
    servers = " ".join(f"server {url.removeprefix('http://')};" for url in urls)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {folder}/pid; "
        f"error_log {folder}/error.log; events {{}} http {{ access_log off; {places} "
        f"upstream labels {{ {servers} keepalive {CONNECTIONS}; }} "
        f"server {{ listen 127.0.0.1:{port}; client_max_body_size 64m; location / {{ "
        'proxy_pass http://labels; proxy_http_version 1.1; proxy_set_header Connection ""; '
        "proxy_set_header Host $host; proxy_read_timeout 120s; } } }"
    )
    process = subprocess.Popen([program, "-p", str(folder), "-c", str(folder / "nginx.conf")])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def arrangement(kind: str, processes: int, run: Path, ledger: str, folder: Path) -> Iterator[str]:
    """Start replicas behind a proxy, or one service of several workers; give the address to ask."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    with ExitStack() as stack:
        if kind == "workers":
            url = stack.enter_context(serving(run, ledger, processes, threads))
        else:
            urls = [stack.enter_context(serving(run, ledger, 1, threads)) for _ in range(processes)]
            url = stack.enter_context(proxy(urls, folder))
        _wait_for(url)
        yield url


def _wait_for(url: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=10):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def load(
    url: str, keys: list[str], images: list[bytes], serials: Iterator[int], seconds: float
) -> tuple[int, float]:
    """Ask without a pause: images answered in all, and images answered a second after the warm-up."""
    ends: list[list[float]] = [[] for _ in range(CONNECTIONS)]
    begun, lock = time.monotonic(), threading.Lock()

    def ask(number: int) -> None:
        connection = Connection(url, keys[number % KEYS])
        while time.monotonic() < begun + WARM_UP + seconds:
            with lock:
                part = fresh(images, serials)
            connection.ask(part)
            ends[number].append(time.monotonic() - begun)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [end for connection in ends for end in connection]
    inside = sum(WARM_UP < end <= WARM_UP + seconds for end in every)
    return len(every) * PER_REQUEST, inside * PER_REQUEST / seconds


def exhaust(url: str, key: str, images: list[bytes], serials: Iterator[int]) -> tuple[int, frozenset[int]]:
    """Ask for more images than a budget allows, one a request: number of answers, statuses of refusals."""
    answered, refused, lock = 0, set[int](), threading.Lock()

    def ask() -> None:
        nonlocal answered
        connection = Connection(url, key)
        for _ in range(BEYOND // CONNECTIONS):
            with lock:
                part = fresh(images[:1], serials)
            try:
                connection.ask(part)
            except RuntimeError as error:
                with lock:
                    refused.add(int(str(error).split(":")[0]))
            else:
                with lock:
                    answered += 1

    threads = [threading.Thread(target=ask) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answered, frozenset(refused)


def measure(backbone: str, kind: str, processes: int, seconds: float, serials: Iterator[int]) -> Row:
    """Start an arrangement with a ledger of its own, and put it under load."""
    with tempfile.TemporaryDirectory() as temporary, postgresql() as place:
        folder = Path(temporary)
        folder.chmod(0o755)
        run, images = make_run(folder / "run", backbone), make_images(PER_REQUEST)
        ledger = Ledger(place)
        keys = [ledger.add_key(f"client-{number}", LARGE) for number in range(KEYS)]
        small = ledger.add_key("small", BUDGET)
        with arrangement(kind, processes, run, place, folder / "nginx") as url:
            answered, per_second = load(url, keys, images, serials, seconds)
            within, refused = exhaust(url, small, images, serials)
        records = {record.name: record.used for record in ledger.list_keys()}
        charged = sum(used for name, used in records.items() if name != "small")
        sound = not ledger.verify().faults and records["small"] == within
        ledger.close()
    return Row(backbone, kind, processes, per_second, answered, charged, within, refused, sound)


def _lines(rows: list[Row], seconds: float) -> list[str]:
    first = {(row.backbone, row.kind): row.per_second for row in reversed(rows)}
    lines = [
        f"{CONNECTIONS} connections of {KEYS} keys, {PER_REQUEST} new JPEG images of 300 x 300 a request, "
        f"{seconds:g} seconds after a warm-up of {WARM_UP:g}; random weights; one PostgreSQL ledger. Threads "
        "of the mathematics: the processors divided by the processes. "
        "'Answered' and 'charged' are images, the warm-up included; "
        f"'budget' is the number of images answered to a key with a budget of {BUDGET} that was asked for "
        f"{BEYOND}.",
        "",
        "| model | arrangement | processes | images/s | times one | answered | charged | budget | refusals "
        "| log |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        times = row.per_second / first[row.backbone, row.kind]
        refusals = ", ".join(map(str, sorted(row.refused)))
        lines.append(
            f"| {row.backbone} | {row.kind} | {row.processes} | {row.per_second:.0f} | {times:.2f} | "
            f"{row.answered:,} | {row.charged:,} | {row.within_budget} | {refusals} | "
            f"{'verifies' if row.sound else 'DOES NOT VERIFY'} |"
        )
    return lines


def _page(rows: list[Row], seconds: float) -> str:
    lines = [
        "# The service in several processes",
        "",
        "Made by `python benchmarks/replicas.py`; not edited by hand. Replicas are behind nginx; workers are "
        "those of one service, without a proxy.",
        "",
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} processors, which the clients, nginx and PostgreSQL use, too.",
        "",
        *_lines(rows, seconds),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", default="1,2,4", help="numbers of processes, the smallest first")
    parser.add_argument("--seconds", type=float, default=10.0, help="time that is measured")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    serials, rows = itertools.count(), list[Row]()
    for backbone, kind in itertools.product(BACKBONES, ("replicas", "workers")):
        for processes in map(int, options.processes.split(",")):
            rows.append(measure(backbone, kind, processes, options.seconds, serials))
            print(rows[-1], flush=True)
            options.out.write_text(_page(rows, options.seconds))


if __name__ == "__main__":
    main()
