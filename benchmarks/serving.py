"""Throughput of the label service against the bare model, on the same cores.

The bare model decodes and labels in this process: batches of the service's size, decoded by one thread a
processor, then a forward pass; with one torch thread and with one a processor, of which the faster counts.
The service is a process of its own (`ucds serve`) on loopback, with a key and a ledger, asked by 8
connections; the client that feeds them takes its share of the same cores. Rounds are interleaved. With
--soak MINUTES, the service is kept at full load instead, and the record says what became of its memory and
of its answering times.

    python benchmarks/serving.py [--soak MINUTES] [--out FILE]
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
from label_service import SIDE, client_of, fresh, labels_request, make_images, make_run, service
from records import Row, table
from sklearn.utils import gen_batches

from ucds.data.decode import decode_image
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify

CONNECTIONS, PER_REQUEST, IMAGES, ROUNDS = 8, 32, 256, 5
TARGET = 0.85


def measure_bare(labeller: ModelLabeller, images: list[bytes], threads: int) -> float:
    """Images a second of the model alone."""
    torch.set_num_threads(threads)
    side = labeller.row_shape[-1]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        begun = time.perf_counter()
        for part in gen_batches(len(images), labeller.batch_size):
            labeller.label(np.stack(list(pool.map(lambda image: decode_image(image, side), images[part]))))
        return len(images) / (time.perf_counter() - begun)


def measure_service(url: str, key: str, images: list[bytes]) -> float:
    """Images a second of the service."""
    parts = [images[part] for part in gen_batches(len(images), PER_REQUEST)]

    def ask(share: list[list[bytes]]) -> None:
        with client_of(url, key) as client:
            for part in share:
                client.send(labels_request(client, part)).raise_for_status()

    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(ask, (parts[i::CONNECTIONS] for i in range(CONNECTIONS))))
    return len(images) / (time.perf_counter() - begun)


def compare(folder: Path) -> str:
    """Compare the service with the bare model."""
    run, serials, originals = folder / "run", itertools.count(), make_images(IMAGES)
    (key,) = make_run(run, "resnet18")
    labeller = ModelLabeller.load(run, "cpu")
    choices = sorted({1, os.cpu_count() or 1})
    rows, ratios = list[Row](), list[float]()
    with service(run, "--port", 0) as (_, url):
        for number in range(ROUNDS + 1):
            some = originals if number else originals[: 2 * PER_REQUEST]  # the first round warms up
            bare = max(measure_bare(labeller, some, threads) for threads in choices)
            served = measure_service(url, key, fresh(some, serials))
            if number:
                ratios.append(served / bare)
                row = {"round": number, "bare model (faster of both), images/s": f"{bare:.1f}"}
                rows.append(row | {"service, images/s": f"{served:.1f}", "ratio": f"{ratios[-1]:.2f}"})
                print(rows[-1], flush=True)
    ratio = median(ratios)
    verdict = "met" if ratio >= TARGET else "missed"
    return f"""{IMAGES} JPEG images of {SIDE} x {SIDE} a round, ResNet-18 with random weights at 224, \
{CONNECTIONS} connections, {PER_REQUEST} images a request, SQLite ledger, every image new.

**Ratio {ratio:.2f} (median over {ROUNDS} interleaved rounds); target {TARGET}: {verdict}.**

{table(rows, "rrrr")}"""


def soak(folder: Path, minutes: float) -> str:
    """Full load on a light model, so that the service itself is what is worn."""
    run, serials, images = folder / "run", itertools.count(), make_images(PER_REQUEST)
    (key,) = make_run(run, "ucds/oriented_edges")
    ends = np.linspace(0, 60 * minutes, 11)
    times: list[tuple[float, float]] = []  # when a request began, and how long its answer took
    with service(run, "--port", 0) as (started, url), ThreadPoolExecutor(CONNECTIONS) as pool:
        process, begun = psutil.Process(started.pid), time.monotonic()

        def ask() -> None:
            with client_of(url, key) as client:
                while (now := time.monotonic() - begun) < ends[-1]:
                    client.send(labels_request(client, fresh(images, serials))).raise_for_status()
                    times.append((now, time.monotonic() - begun - now))

        asking = [pool.submit(ask) for _ in range(CONNECTIONS)]
        memory, work = [], []  # of the service without its decoding processes
        for end in ends:
            time.sleep(max(0.0, begun + end - time.monotonic()))
            memory.append(process.memory_info().rss / 2**20)
            work.append(sum(process.cpu_times()[:2]))
        for one in asking:
            one.result()
    with closing(Ledger(run)) as ledger:
        used = ledger.list_keys()[0].used
    rows = list[Row]()
    for tenth in range(1, 11):
        own = [1000 * took for start, took in times if ends[tenth - 1] <= start < ends[tenth]]
        each = 1000 * (work[tenth] - work[tenth - 1]) / (len(own) * PER_REQUEST)
        middle, p99 = np.quantile(own, (0.5, 0.99))
        row = {"minute": f"{ends[tenth] / 60:.1f}", "resident memory, MiB": f"{memory[tenth]:.0f}"}
        row |= {"processor ms an image": f"{each:.3f}", "median, ms": f"{middle:.0f}"}
        rows.append(row | {"p99, ms": f"{p99:.0f}"})
    answered, sound = len(times) * PER_REQUEST, not verify(run).faults
    return f"""{minutes:g} minutes at full load: {CONNECTIONS} connections, {PER_REQUEST} images a request, \
a light model (`ucds/oriented_edges`), SQLite ledger, every image new.

{answered:,} images answered, {answered / minutes / 60:.0f} a second; the ledger holds {used:,}; its audit \
chain {"verifies" if sound else "DOES NOT VERIFY"}.

Processor time is that of the service without its decoding processes.

{table(rows, "rrrrr")}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--soak", type=float, default=0.0, help="minutes; instead of the comparison")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    name, title, how = "serving", "The service against the bare model", ""
    if options.soak:
        name, title, how = "serving_soak", "The service under load for long", " --soak MINUTES"
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), options.soak) if options.soak else compare(Path(folder))
    text = f"""# {title}

Made by `python benchmarks/serving.py{how}`; not edited by hand.

torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} \
processors.

{found}
"""
    (options.out or Path(__file__).with_name(f"{name}.md")).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
