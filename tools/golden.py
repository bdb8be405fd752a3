"""Compares what two revisions compute: the tensors of models, the labels and the predictions, byte by byte.

    python tools/golden.py BEFORE AFTER [--work DIR] [--only WORD]

BEFORE and AFTER are checkouts; both run with the Python that runs this script, on the same small data, one
after the other. The cases are both sides (a provider, whose labels train a client) with both methods, on
images and on embeddings, whole, and stopped, killed and resumed; a resumed run is also compared with the
whole one. What a run says about itself (cards, settings, logs) is not compared. Prints one
line for each file, and ends with status 1 if a file differs.

With --work the results of each revision are kept, and a clean checkout is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

CLUSTERS = 4
LENGTHS = {"source": ["source_epochs=3"], "target": ["clustering_epochs=3", "refinement_epochs=3"]}
"""Settings of the method PCD that make its runs short."""


MOMENTS = {"pcd": ("log.jsonl", "log.jsonl"), "consensus": ("run.json", "checkpoint.npz")}
"""Files of a run that grow when it may be stopped, and when the resumed run may be killed."""


@dataclass(frozen=True)
class Case:
    """One provider with its client.

    Attributes:
        method: ``"pcd"`` or ``"consensus"``.
        data: ``"images"`` or ``"embeddings"``.
        tune: ``"full"`` or ``"head"``.
        stopped: whether the trainings are stopped by SIGINT, resumed, killed by SIGKILL and resumed.
    """

    method: str
    data: str
    tune: str
    stopped: bool = False

    @property
    def name(self) -> str:
        """Name of the case's folder."""
        return "-".join([self.method, self.data, self.tune, *(["stopped"] if self.stopped else [])])


CASES = (
    Case("pcd", "images", "full"),
    Case("pcd", "images", "full", stopped=True),
    Case("pcd", "images", "head"),
    Case("pcd", "embeddings", "head"),
    Case("pcd", "embeddings", "head", stopped=True),
    Case("consensus", "images", "head"),
    Case("consensus", "embeddings", "head"),
    Case("consensus", "embeddings", "head", stopped=True),
)


def make_data(folder: Path) -> None:
    """Draw pictures and embeddings of four groups in three domains, and remember their classes nowhere."""
    rng = np.random.default_rng(0)
    colours = rng.integers(60, 220, (CLUSTERS, 3))
    centres = rng.normal(size=(CLUSTERS, 16))
    vectors = {}
    for shift, (domain, count) in enumerate({"east": 60, "north": 48, "clinic": 56}.items()):
        target = domain == "clinic"
        place = folder / "images" / ("target" if target else f"source/{domain}")
        place.mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 60, (40, 40, 3)) + 10 * shift
            pixels[8:32, 4 + 6 * (i % 4) : 16 + 6 * (i % 4)] = colours[i % CLUSTERS] + 5 * shift
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(place / f"{i:03d}.png")
        noise = rng.normal(size=(4 * count, 16))
        vectors[domain] = (centres[np.arange(4 * count) % CLUSTERS] + 0.5 * noise + 0.3 * shift).astype(
            np.float32
        )
    (folder / "embeddings").mkdir()
    np.save(folder / "embeddings" / "target.npy", vectors["clinic"])
    np.savez(folder / "embeddings" / "source.npz", east=vectors["east"], north=vectors["north"])


class Revision:
    """Runs the commands of one checkout in a folder of its own.

    Args:
        checkout: root of the checkout.
        folder: folder for caches, models, labels and predictions.
        data: folder that :func:`make_data` filled.
    """

    def __init__(self, checkout: Path, folder: Path, data: Path) -> None:
        self.folder, self.data = folder, data
        self._environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
        self._environment["XDG_CACHE_HOME"] = str(folder / "cache")

    def run(self, case: Case) -> None:
        """Train the provider, label the client's samples, train the client, and predict.

        Raises:
            RuntimeError: a command failed.
        """
        place = self.folder / case.name
        place.mkdir(parents=True)
        images = case.data == "images"
        source = self.data / case.data / ("source" if images else "source.npz")
        target = self.data / case.data / ("target" if images else "target.npy")
        quiet = ["--accelerator", "cpu", "--quiet"]
        encoder = ["--backbone", "test_resnet", "--weights", "none", "--image-size", "32"] if images else []
        common = ["--method", case.method, "--tune", case.tune, *encoder, *quiet]
        provider, client, labels = (str(place / name) for name in ("provider", "client", "labels.json"))
        train = [["train-source", str(source), "--clusters", str(CLUSTERS), "--out", provider, *common]]
        train += [["train-target", str(target), "--labels", labels, "--out", client, "--no-report", *common]]
        if case.method == "pcd":
            for command, side in zip(train, LENGTHS, strict=True):
                for length in LENGTHS[side]:
                    command += ["--set", length]
        self._train(train[0], Path(provider), case)
        self._call(["label", provider, str(target), "--out", labels, *quiet])
        self._train(train[1], Path(client), case)
        self._call(["predict", client, str(target), "--out", str(place / "predictions.csv"), *quiet])

    def _train(self, command: list[str], run: Path, case: Case) -> None:
        if case.stopped:
            stopped, killed = MOMENTS[case.method]
            self._stop(command, run / stopped, signal.SIGINT)
            command = [*command, "--resume"]
            self._stop(command, run / killed, signal.SIGKILL)
        self._call(command)

    def _stop(self, command: list[str], file: Path, number: signal.Signals) -> None:
        """Start a training, and send it a signal as soon as it has written something new to a file."""
        before = file.stat().st_size if file.exists() else 0
        process = self._start(command)
        while process.poll() is None and not (file.exists() and file.stat().st_size > before):
            time.sleep(0.005)
        process.send_signal(number)
        if process.wait() == 0:
            raise RuntimeError(f"ucds {' '.join(command)}\nended before it could be stopped")

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "ucds", *command]
        return subprocess.Popen(arguments, env=self._environment, stderr=subprocess.PIPE, text=True)

    def _call(self, command: list[str]) -> None:
        process = self._start(command)
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"ucds {' '.join(command)}\n{said}")


def compare(a: Path, b: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of two results and what differs in it; an empty text if nothing does."""
    for side in ("provider", "client"):
        yield f"{side} model", _differences(*(load_file(x / side / "model.safetensors") for x in (a, b)))
    yield "labels", _differences(*(_labels(x / "labels.json") for x in (a, b)))
    yield "predictions", _differences(*(_predictions(x / "predictions.csv") for x in (a, b)))


def _differences(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> str:
    found = [f"{name} is gone" for name in before.keys() - after.keys()]
    found += [f"{name} is new" for name in after.keys() - before.keys()]
    for name in sorted(before.keys() & after.keys()):
        a, b = before[name], after[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            found.append(f"{name}: {a.dtype}{a.shape} became {b.dtype}{b.shape}")
        elif a.tobytes() != b.tobytes():
            numbers = a.dtype.kind in "fiu"
            change = np.abs(a.astype(float) - b.astype(float)).max() if numbers else "other text"
            found.append(f"{name}: largest difference {change}")
    return "; ".join(found)


def _labels(path: Path) -> dict[str, np.ndarray]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return {"ids": np.array(content["ids"]), "labels": np.array(content["labels"])}


def _predictions(path: Path) -> dict[str, np.ndarray]:
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _results_of(checkout: Path, cases: list[Case], work: Path, data: Path) -> Path:
    """Run the cases of one checkout that are not there yet, and return the folder of its results."""
    revision = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    name = subprocess.run(revision, check=True, capture_output=True, text=True).stdout.strip()
    status = ["git", "-C", str(checkout), "status", "--porcelain", "--", "src"]
    if subprocess.run(status, check=True, capture_output=True, text=True).stdout:
        name += f"-changed-{time.time_ns()}"
    for case in cases:
        if not (work / name / case.name / "predictions.csv").exists():
            shutil.rmtree(work / name / case.name, ignore_errors=True)
            Revision(checkout, work / name, data).run(case)
    return work / name


def main() -> int:
    """Compare two checkouts, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", type=Path, help="checkout of the earlier revision")
    parser.add_argument("after", type=Path, help="checkout of the later revision")
    parser.add_argument("--work", type=Path, help="folder that keeps the results of each revision")
    parser.add_argument("--only", default="", help="run only the cases whose name contains this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (given.work or Path(temporary)).resolve()
        data = work / "data"
        if not data.exists():
            make_data(data)
        cases = [case for case in CASES if given.only in case.name]
        checkouts = (given.before.resolve(), given.after.resolve())
        before, after = (_results_of(checkout, cases, work, data) for checkout in checkouts)
        equal = True
        for case in cases:
            found = list(compare(before / case.name, after / case.name))
            whole = replace(case, stopped=False)
            if case.stopped and whole in cases:
                resumed = compare(after / whole.name, after / case.name)
                found += [(f"{file}, resumed", difference) for file, difference in resumed]
            for file, difference in found:
                equal = equal and not difference
                print(f"{case.name:32} {file:26} {difference or 'equal'}", flush=True)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
