"""The demo: three clinics sort handwritten digits, alone, with a provider's labels, and with a person's help.

The small clinic has few pictures, and gains from the provider's labels; in the large clinic, labels have
little weight, and cost a point or two. The turned clinic has the large clinic's pictures, turned by a scanner
that lies on its side. The provider has not learned from such pictures, so the guard sets its labels aside;
there, a person who answers a few questions helps. A week later, the small clinic has new pictures, which join
its clusters. The demo ends with reports to open, and uses only public functions of the package.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from ucds.data.folders import scan_folder
from ucds.data.ground_truth import read_ground_truth
from ucds.demo.digits import STYLES, write_digits
from ucds.encoders.spec import EDGES
from ucds.errors import InputError, ServiceUnavailableError
from ucds.evaluation import evaluate
from ucds.experiments.datasets import small_subset
from ucds.files import require_writable, write_text_atomically
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.page.report import report
from ucds.serving.ledger import Ledger
from ucds.serving.verify import verify
from ucds.source.label import label
from ucds.source.train import train_source
from ucds.target.ask import query
from ucds.target.review import Review
from ucds.target.train import train_target
from ucds.target.update import update
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.progress import Reporter
from ucds.training.run_folder import LABELS_FILE, TRANSFER_FILE

N_CLUSTERS = 10
SMALL, LARGE, TURNED, PROVIDER = "small-clinic", "large-clinic", "turned-clinic", "provider"
STYLE_OF = {SMALL: "chalk", LARGE: "neon", TURNED: "neon"}
SOURCES = tuple(style for style in STYLES if style not in STYLE_OF.values())
ENCODER = EncoderOptions(EDGES)

QUESTIONS = 8
"""Number of questions that the person in the demo answers."""

NEXT = 60
"""Number of new pictures that the small clinic has a week later."""

_RECOGNISED = 0.6  # share of a group that shows one digit, from which on the person says which
_TEMPLATE = files("ucds.demo") / "template" / "outcome.txt"
_READY = "listening on "
_OURS = {
    "digits",
    "cache",
    "runs",
    "metrics.json",
    *(f"{clinic}-images" for clinic in (*STYLE_OF, f"{SMALL}-next")),
}


@dataclass(frozen=True)
class Place:
    """Folders of a demo, and the common arguments of its runs."""

    out: Path  # of the demo
    seed: int  # of every random choice but the drawing
    reporter: Reporter

    @property
    def digits(self) -> Path:
        """Folder of the pictures, with a folder for each style."""
        return self.out / "digits"

    @property
    def compute(self) -> Compute:
        """Device, cache and reporter of every run."""
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


def run_demo(out: Path, seed: int, reporter: Reporter) -> str:
    """Draw the digits, let the clinics cluster them, ask a person, and return the results in words.

    The folder ``out`` gets ``digits/`` (the pictures), ``CLINIC-images/`` (those of each clinic), ``runs/``
    (models and reports) and ``metrics.json``. Files of an earlier demo there are written again.
    """
    check_folder(out)
    place = Place(out, seed, reporter)
    write_digits(place.digits)
    for clinic in STYLE_OF:
        give_pictures(place, clinic)
    clinics = visit_all(place)
    reporter.say("a person answers questions about the clusters of the turned clinic")
    review = ask_a_person(place, TURNED)
    reporter.say("the small clinic has new pictures a week later")
    week = take_new_pictures(place)
    metrics = {"n_clusters": N_CLUSTERS, "seed": seed, "clinics": clinics, "review": review, "week": week}
    write_text_atomically(out / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    report(place.run(f"{SMALL}-next"), compute=place.compute)
    for clinic in (f"{TURNED}-reviewed", LARGE, SMALL):
        page = report(place.run(clinic), compute=place.compute)
    with closing(Ledger(str(place.run(PROVIDER)))) as book:
        (holder,) = book.list_keys()
    verdict = verify(place.run(PROVIDER))
    return describe(metrics, holder=holder, verdict=verdict, out=out, page=page.path)


def check_folder(out: Path) -> None:
    """Make sure that a folder is new, is empty, or holds an earlier demo."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose another `out`")
    if out.exists() and any(entry.name not in _OURS for entry in out.iterdir()):
        raise InputError(f"{out} holds other things than a demo: choose another `out`")
    require_writable(out / "metrics.json")


def give_pictures(place: Place, clinic: str, *, next_week: bool = False) -> None:
    """Give a clinic pictures in its style; the small clinic also gets those of the next week."""
    drawn = place.digits / STYLE_OF[clinic]
    pictures = sorted(drawn.rglob("*.png"))
    if clinic == SMALL:
        few = small_subset(np.arange(len(pictures)), place.seed)
        rest = np.random.default_rng(place.seed).permutation(np.setdiff1d(np.arange(len(pictures)), few))
        pictures = [pictures[i] for i in (rest[:NEXT] if next_week else few)]
    folder = place.images(f"{clinic}-next" if next_week else clinic)
    shutil.rmtree(folder, ignore_errors=True)
    for picture in pictures:
        copy = folder / picture.relative_to(drawn)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(picture) as opened:
            turned = opened.transpose(Image.Transpose.ROTATE_90) if clinic == TURNED else opened
            turned.save(copy)


def visit_all(place: Place) -> dict[str, dict[str, Any]]:
    """Train the provider's model and, with and without its labels, each clinic's; return the scores.

    The small clinic and the turned one hand their pictures over and get a file of labels. The large one asks
    over HTTP, with a key that has a budget and is calibrated first; the service runs in a separate process.
    """
    shutil.rmtree(place.out / "runs", ignore_errors=True)
    provider, say = place.run(PROVIDER), place.reporter.say
    say(f"the provider learns from {', '.join(SOURCES)}")
    train_source(place.digits, provider, N_CLUSTERS, domains=SOURCES, **place.shared)
    for clinic in STYLE_OF:
        name, images = clinic.replace("-", " "), place.images(clinic)
        answers = place.run(f"{clinic}-labels.json")
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


@contextmanager
def label_service(run: Path, budget: int) -> Iterator[LabelClient]:
    """Serve a source run on a free loopback port in a separate process, and open a client for it."""
    with closing(Ledger(str(run), create=True)) as book:
        key = book.add_key(LARGE, budget)
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--accelerator", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = next((line for line in process.stdout or () if line.startswith(_READY)), None)
            if said is None:
                raise ServiceUnavailableError(f"the label service did not start: {process.communicate()[1]}")
            with LabelClient(said.removeprefix(_READY).strip(), key, calibrate=True) as client:
                yield client
        finally:
            process.terminate()


def judge(place: Place, clinic: str) -> dict[str, Any]:
    """Score a clinic's clusters, without and with labels, and the labels themselves, against its digits."""
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
    """Ask a few questions about a clinic's clusters, and answer them from its true digits."""
    classes, review = _classes_of(place, clinic), Review(place.run(clinic))
    while review.answered < QUESTIONS and (question := review.question()) is not None:
        counts = [np.bincount([classes[name] for name in group]) for group in question.groups]
        same = [i for i, other in enumerate(counts[1:]) if other.argmax() == counts[0].argmax()]
        if counts[0].max() < _RECOGNISED * counts[0].sum():
            review.answer("mixed")
        elif question.kind == "one-or-two":
            review.answer("one" if same else "two")
        else:
            review.answer(same[0] if same else "new")
    done = review.finish()
    before, after = (_accuracy(place, clinic, name) for name in (clinic, done.path.name))
    return {"clinic": clinic, "answers": review.answered, "before": before, "after": after}


def take_new_pictures(place: Place) -> dict[str, Any]:
    """Take new pictures of the small clinic into its run, and return the changes."""
    give_pictures(place, SMALL, next_week=True)
    images, run = place.images(f"{SMALL}-next"), place.run(f"{SMALL}-next")
    done = update(place.run(SMALL), images, run, compute=place.compute.silent())
    accuracy = evaluate(run, images, compute=place.compute.silent()).overall.accuracy
    return {
        "joined": done.joined,
        "moved": len(done.moved),
        "accuracy": accuracy,
        "sentences": done.sentences,
    }


def _classes_of(place: Place, clinic: str) -> dict[str, int]:
    """Return the digit that each picture of a clinic shows, by its id."""
    pictures = scan_folder(place.images(clinic))
    truth = read_ground_truth(pictures)
    assert truth is not None
    return dict(zip(pictures.ids, truth.classes.tolist(), strict=True))


def _accuracy(place: Place, clinic: str, run: str) -> float:
    return evaluate(place.run(run), place.images(clinic), compute=place.compute.silent()).overall.accuracy


def describe(metrics: Mapping[str, Any], **others: object) -> str:
    """Describe the results of the clinics, and what the person's answers changed."""
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(metrics, style_of=STYLE_OF, sources=SOURCES, **others)
