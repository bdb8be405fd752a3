"""The provider, the clinics and the person of the demo: each works with the package's public functions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ucds.backbones.oriented_edges import NAME as BACKBONE
from ucds.data.ground_truth import read_ground_truth
from ucds.demo.digits import STYLES, write_digits
from ucds.errors import ServiceUnavailableError
from ucds.evaluation import evaluate
from ucds.experiments.subsets import small_subset
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.serving.ledger import Ledger
from ucds.source.label import label
from ucds.source.train import train_source
from ucds.target.ask import query
from ucds.target.review import Review
from ucds.target.train import train_target
from ucds.training.loaded import load
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.progress import Reporter
from ucds.training.run_folder import LABELS_FILE, TRANSFER_FILE

N_CLUSTERS = 10
SMALL, LARGE, TURNED, PROVIDER = "small-clinic", "large-clinic", "turned-clinic", "provider"
STYLE_OF = {SMALL: "chalk", LARGE: "neon", TURNED: "neon"}
SOURCES = tuple(style for style in STYLES if style not in STYLE_OF.values())
ENCODER = EncoderOptions(BACKBONE, "none")

QUESTIONS = 8
"""Questions that the person of the demo answers."""

_SMALL_SIZE = 100
_READY = "listening on "


@dataclass(frozen=True)
class Place:
    """Folders of a demo, and what its runs have in common.

    Attributes:
        out: folder of the demo.
        seed: seed of every random choice.
        reporter: receives progress messages.
    """

    out: Path
    seed: int
    reporter: Reporter

    @property
    def digits(self) -> Path:
        """Folder of the pictures, with a folder for each style."""
        return self.out / "digits"

    @property
    def compute(self) -> Compute:
        """How every run computes."""
        return Compute("cpu", cache=self.out / "cache", reporter=self.reporter)

    @property
    def shared(self) -> dict[str, Any]:
        """Arguments of every training."""
        return {"encoder": ENCODER, "options": RunOptions(self.seed), "compute": self.compute}

    def images(self, clinic: str) -> Path:
        """Folder of a clinic's pictures."""
        return self.out / f"{clinic}-images"

    def run(self, name: str) -> Path:
        """Run folder of the provider, or of a clinic."""
        return self.out / "runs" / name


def draw(place: Place) -> None:
    """Draw the digits in four styles, and give each clinic its pictures."""
    write_digits(place.digits)
    for clinic, style in STYLE_OF.items():
        pictures = sorted((place.digits / style).rglob("*.png"))
        if clinic == SMALL:
            pictures = [pictures[i] for i in small_subset(np.arange(len(pictures)), _SMALL_SIZE, place.seed)]
        shutil.rmtree(place.images(clinic), ignore_errors=True)
        for picture in pictures:
            copy = place.images(clinic) / picture.relative_to(place.digits / style)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with Image.open(picture) as opened:
                turned = opened.transpose(Image.Transpose.ROTATE_90) if clinic == TURNED else opened
                turned.save(copy)


def visit_all(place: Place) -> dict[str, dict[str, Any]]:
    """Train the provider's model, and each clinic's with and without the provider's labels.

    The small clinic and the turned one hand their pictures over and get a file of labels. The large one asks
    over HTTP, with a key that has a budget and is calibrated first; the service runs in a process of its own.

    Returns:
        What became of each clinic, by name; see :func:`judge`.
    """
    shutil.rmtree(place.out / "runs", ignore_errors=True)
    provider, say = place.run(PROVIDER), place.reporter.say
    say(f"the provider learns from {', '.join(SOURCES)}")
    train_source(place.digits, provider, N_CLUSTERS, domains=SOURCES, **place.shared)
    for clinic in STYLE_OF:
        name, images, answers = clinic.replace("-", " "), place.images(clinic), _answers(place, clinic)
        say(f"the {name} clusters its pictures alone")
        train_target(images, place.run(f"{clinic}-alone"), n_clusters=N_CLUSTERS, **place.shared)
        if clinic == LARGE:
            say(f"the {name} asks the provider's service over HTTP")
            with label_service(provider, len(list(images.rglob("*.png")))) as client:
                query(images, answers, client)
        else:
            say(f"the {name} hands its pictures over and gets a file of labels")
            label(provider, images, answers, compute=place.compute.silent())
        train_target(images, place.run(clinic), labels=answers, **place.shared)
    # The classes are read only from here on, after every clinic has its clusters.
    return {clinic: judge(place, clinic) for clinic in STYLE_OF}


def _answers(place: Place, clinic: str) -> Path:
    return place.out / "runs" / f"{clinic}-labels.json"


def judge(place: Place, clinic: str) -> dict[str, Any]:
    """Score a clinic's clusters against the digits that its pictures show.

    Returns:
        Number of pictures, accuracy of clustering alone, of the provider's labels as they are and of
        clustering with them, and the guard's use of the labels with its reasons.
    """
    classes, answers = _classes_of(place, clinic), ClusterLabels.load(place.run(clinic) / LABELS_FILE)
    truth = np.array([classes[name] for name in answers.ids])
    transfer = json.loads((place.run(clinic) / TRANSFER_FILE).read_text())
    return {
        "images": len(classes),
        "alone": _accuracy(place, clinic, f"{clinic}-alone"),
        "provider": score(answers.labels, truth).accuracy,
        "asked": _accuracy(place, clinic, clinic),
        "use": transfer["use"],
        "sentence": transfer["sentence"],
    }


def ask_a_person(place: Place, clinic: str) -> dict[str, Any]:
    """Ask a few questions about a clinic's clusters, and answer them from the digits that its pictures show.

    Returns:
        Number of answers, and the accuracy before and after them.
    """
    classes, review = _classes_of(place, clinic), Review(place.run(clinic))
    while review.answered < QUESTIONS and (question := review.question()) is not None:
        kinds = [np.bincount([classes[name] for name in group]).argmax() for group in question.groups]
        same = [i for i, kind in enumerate(kinds[1:]) if kind == kinds[0]]
        if question.kind == "one-or-two":
            review.answer("one" if same else "two")
        else:
            review.answer(same[0] if same else "new")
    done = review.finish()
    before, after = (_accuracy(place, clinic, name) for name in (clinic, done.path.name))
    return {"clinic": clinic, "answers": review.answered, "before": before, "after": after}


def _classes_of(place: Place, clinic: str) -> dict[str, int]:
    """Return the digit that each picture of a clinic shows, by its id."""
    samples = load(place.run(clinic), compute=place.compute.silent()).open(place.images(clinic)).samples
    truth = read_ground_truth(samples)
    assert truth is not None
    return dict(zip(samples.ids, truth.classes.tolist(), strict=True))


def _accuracy(place: Place, clinic: str, run: str) -> float:
    found = evaluate(place.run(run), place.images(clinic), compute=place.compute.silent())
    return found.overall.accuracy


@contextmanager
def label_service(run: Path, budget: int) -> Iterator[LabelClient]:
    """Serve a source run on a free loopback port in a process of its own, and open a client of it.

    Args:
        run: source run.
        budget: number of samples whose labels the client's key pays for.

    Raises:
        ServiceUnavailableError: the service did not start; its last line of output is part of the message.
    """
    book = Ledger(str(run), create=True)
    key = book.add_key(LARGE, budget)
    book.close()
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--accelerator", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                if line.startswith(_READY):
                    url = line.removeprefix(_READY).strip()
                    break
            else:
                said = process.stderr.read().strip().splitlines() or ["it wrote nothing"]
                raise ServiceUnavailableError(f"the label service did not start: {said[-1]}")
            with LabelClient(url, key, calibrate_key=True) as client:
                yield client
        finally:
            process.terminate()
