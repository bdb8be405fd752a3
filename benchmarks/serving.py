"""Throughput of the label service against the bare model, on the same cores.

The bare model decodes and labels in this process: batches of the service's size, decoded by one thread a
processor, then a forward pass; with one torch thread and with one a processor, of which the faster counts.
The service is a process of its own (`ucds serve`) on loopback, with a key and a ledger, asked by 8
connections; the client that feeds them takes its share of the same cores. Rounds are interleaved.

    python benchmarks/serving.py
"""

from __future__ import annotations

import itertools
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import torch
from label_service import SIDE, client_of, fresh, labels_request, make_images, make_run, service
from records import Row, table
from sklearn.utils import gen_batches

from ucds.data.decode import decode_image
from ucds.serving.labeller import ModelLabeller
from ucds.training.model_file import load_model

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
    labeller = ModelLabeller(load_model(run, role="source"))
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder))
    text = f"""# The service against the bare model

Made by `python benchmarks/serving.py`; not edited by hand.

torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} \
processors.

{found}
"""
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)
