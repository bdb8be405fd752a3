"""Throughput of the label service against the bare model, on the same cores.

The bare model decodes and labels in this process: batches of the service's size, decoded by one thread a
processor, then a forward pass; with one torch thread and with one a processor, of which the faster counts.
The service is a process of its own (`ucds serve`) on loopback, with a key and a ledger, asked by 8
connections; the client that feeds them takes its share of the same cores. Rounds are interleaved. With
--soak MINUTES, the service is kept at full load instead, and the record says what became of its memory and
of its answering times.
    python benchmarks/serving.py [--images N] [--rounds R] [--soak MINUTES] [--out FILE]
"""

from __future__ import annotations

import argparse
import http.client
import io
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import torch
from PIL import Image

from ucds.backbones import build_backbone
from ucds.data.decode import decode_image
from ucds.models import ClusteringModel
from ucds.serving.labeller import ModelLabeller
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify
from ucds.training.model_file import ModelCard, StoredModel, save_model

CONNECTIONS = 8
PER_REQUEST = 32
TARGET = 0.85
N_CLUSTERS = 31
SIDE = 300


def make_run(folder: Path, backbone: str, *, recentres: bool = False) -> Path:
    torch.manual_seed(0)
    built = build_backbone(backbone, weights="none")
    model = ClusteringModel(built, N_CLUSTERS, unit_features=recentres)
    names = ("a",), ("source",)
    card = ModelCard("source", "bench", N_CLUSTERS, 256, built.spec, built.weights, *names)
    card = replace(card, unit_features=recentres, recentres=recentres)
    folder.mkdir()
    save_model(folder, StoredModel.of(card, model, torch.full((1, N_CLUSTERS), 1 / N_CLUSTERS)))
    return folder


def make_images(count: int) -> list[bytes]:
    """JPEG files like photographs: smooth forms with some noise."""
    generator = np.random.default_rng(0)
    images = []
    for _ in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 12, 3), np.uint8))
        pixels = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(int)
        pixels = (pixels + generator.integers(-12, 13, pixels.shape)).clip(0, 255)
        buffer = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG", quality=85)
        images.append(buffer.getvalue())
    return images


def fresh(images: list[bytes], serials: Iterator[int]) -> list[bytes]:
    """The same images as new ones: bytes after the end of a JPEG change its content key alone."""
    return [image + next(serials).to_bytes(8, "big") for image in images]


@contextmanager
def service(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--accelerator", "cpu"]
    process = subprocess.Popen(
        [*command, *(options or ("--port", "0"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait()


class Connection:
    """One connection that sends images and waits for their labels."""

    def __init__(self, url: str, key: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "multipart/form-data; boundary=b"}

    def ask(self, images: list[bytes]) -> list[int]:
        """Labels of images, in order."""
        head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="i"\r\n\r\n'
        body = b"".join(head + image + b"\r\n" for image in images) + b"--b--\r\n"
        self._http.request("POST", "/v1/labels", body, self._headers)
        answer = self._http.getresponse()
        content = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {content}")
        labels: list[int] = content["labels"]
        return labels


def measure_bare(
    labeller: ModelLabeller, pool: ThreadPoolExecutor, images: list[bytes], threads: int
) -> float:
    torch.set_num_threads(threads)
    begun, side = time.perf_counter(), labeller.row_shape[-1]
    for part in _parts(images, labeller.batch_size):
        labeller.label(np.stack(list(pool.map(lambda image: decode_image(image, side), part))))
    return len(images) / (time.perf_counter() - begun)


def _parts(images: list[bytes], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def measure_service(url: str, key: str, images: list[bytes]) -> float:
    parts = list(_parts(images, PER_REQUEST))
    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [parts[i::CONNECTIONS] for i in range(CONNECTIONS)]
        list(pool.map(lambda share: _ask_all(Connection(url, key), share), shares))
    return len(images) / (time.perf_counter() - begun)


def _ask_all(connection: Connection, share: list[list[bytes]]) -> None:
    for part in share:
        connection.ask(part)


def compare(images: int, rounds: int) -> list[str]:
    serials = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", "resnet18")
        ledger = Ledger(run, create=True)
        key = ledger.add_key("bench", 10**9)
        ledger.close()
        originals = make_images(images)
        labeller = ModelLabeller.load(run, "cpu")
        pool = ThreadPoolExecutor(os.cpu_count())
        choices = sorted({1, os.cpu_count() or 1})
        figures: list[tuple[float, float]] = []
        with service(run) as (_, url):
            measure_service(url, key, fresh(originals[: 2 * PER_REQUEST], serials))
            for threads in choices:
                measure_bare(labeller, pool, originals[: 2 * PER_REQUEST], threads)
            for _ in range(rounds):
                bare = max(measure_bare(labeller, pool, originals, threads) for threads in choices)
                served = measure_service(url, key, fresh(originals, serials))
                figures.append((bare, served))
                print(f"bare {bare:.1f}/s, served {served:.1f}/s, ratio {served / bare:.2f}", flush=True)
        pool.shutdown()
    return _comparison(figures, images)


def _comparison(figures: list[tuple[float, float]], images: int) -> list[str]:
    ratio = statistics.median(served / bare for bare, served in figures)
    verdict = "met" if ratio >= TARGET else "missed"
    lines = [
        f"{images} JPEG images of {SIDE} x {SIDE} a round, ResNet-18 with random weights at 224, "
        f"{CONNECTIONS} connections, {PER_REQUEST} images a request, SQLite ledger, every image new.",
        "",
        f"**Ratio {ratio:.2f} (median over {len(figures)} interleaved rounds); target {TARGET}: {verdict}.**",
        "",
        "| round | bare model (faster of both), images/s | service, images/s | ratio |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for i, (bare, served) in enumerate(figures, 1):
        lines.append(f"| {i} | {bare:.1f} | {served:.1f} | {served / bare:.2f} |")
    return lines


def soak(minutes: float) -> list[str]:
    """Full load on a light model, so that the service itself is what is worn."""
    serials = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", "ucds/oriented_edges")
        ledger = Ledger(run, create=True)
        key = ledger.add_key("bench", 10**9)
        ledger.close()
        originals = make_images(PER_REQUEST)
        with service(run) as (process, url):
            samples = _keep_busy(process.pid, url, key, originals, serials, minutes * 60)
        ledger = Ledger(run)
        used = ledger.list_keys()[0].used
        ledger.close()
        verdict = verify(run)
    answered = sum(len(times) for *_, times in samples) * PER_REQUEST
    return _soak_record(samples, minutes, answered, used, not verdict.faults)


def _keep_busy(
    pid: int, url: str, key: str, images: list[bytes], serials: Iterator[int], seconds: float
) -> list[tuple[float, float, float, list[float]]]:
    """Ask without a pause: for each tenth of the time, its end, memory, processor time, and answering times.

    The memory, in MiB, and the processor time, in seconds, are those of the service without its decoding
    processes.
    """
    end, times, lock = time.monotonic() + seconds, [[] for _ in range(10)], threading.Lock()  # type: ignore[var-annotated]
    begun = time.monotonic()

    def ask() -> None:
        connection = Connection(url, key)
        while (now := time.monotonic()) < end:
            with lock:
                part = fresh(images, serials)
            connection.ask(part)
            times[min(9, int(10 * (now - begun) / seconds))].append(time.monotonic() - now)

    threads = [threading.Thread(target=ask) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    memory, used = [], [_processor_seconds(pid)]
    for tenth in range(1, 11):
        time.sleep(max(0.0, begun + seconds * tenth / 10 - time.monotonic()))
        memory.append(_resident(pid))
        used.append(_processor_seconds(pid))
    for thread in threads:
        thread.join()
    return [(seconds * (i + 1) / 10, memory[i], used[i + 1] - used[i], times[i]) for i in range(10)]


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _soak_record(
    samples: list[tuple[float, float, float, list[float]]],
    minutes: float,
    answered: int,
    used: int,
    sound: bool,
) -> list[str]:
    lines = [
        f"{minutes:g} minutes at full load: {CONNECTIONS} connections, {PER_REQUEST} images a request, a "
        f"light model (`ucds/oriented_edges`), SQLite ledger, every image new.",
        "",
        f"{answered:,} images answered, {answered / minutes / 60:.0f} a second; the ledger holds {used:,}; "
        f"its audit chain {'verifies' if sound else 'DOES NOT VERIFY'}.",
        "",
        "Processor time is that of the service without its decoding processes.",
        "",
        "| minute | resident memory, MiB | processor ms an image | median, ms | p99, ms |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for end, memory, work, times in samples:
        middle, p99 = (1000 * float(np.quantile(times, q)) for q in (0.5, 0.99))
        each = 1000 * work / (len(times) * PER_REQUEST)
        lines.append(f"| {end / 60:.1f} | {memory:.0f} | {each:.3f} | {middle:.0f} | {p99:.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--soak", type=float, default=0.0, help="minutes; instead of the comparison")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    name, title, how = "serving", "The service against the bare model", ""
    if options.soak:
        name, title, how = "serving_soak", "The service under load for long", " --soak MINUTES"
        lines = soak(options.soak)
    else:
        lines = compare(options.images, options.rounds)
    machine = (
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, "
        f"{os.cpu_count()} processors."
    )
    made = f"Made by `python benchmarks/serving.py{how}`"
    text = "\n".join([f"# {title}", "", f"{made}; not edited by hand.", "", machine, "", *lines, ""])
    (options.out or Path(__file__).with_name(f"{name}.md")).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
