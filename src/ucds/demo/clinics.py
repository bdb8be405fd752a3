"""The clinics of the demo and their provider: each trains with the package's public functions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ucds.backbones.oriented_edges import NAME as BACKBONE
from ucds.data.ground_truth import read_ground_truth
from ucds.demo.digits import STYLES, write_digits
from ucds.demo.loopback import label_service, make_key
from ucds.experiments.subsets import small_subset
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import ClusteringScores, score
from ucds.source.label import label
from ucds.source.train import train_source
from ucds.target.ask import query
from ucds.target.train import train_target
from ucds.training.loaded import load
from ucds.training.options import CacheOptions, EncoderOptions, RunOptions
from ucds.training.progress import Reporter
from ucds.training.run_folder import LABELS_FILE, TRANSFER_FILE

N_CLUSTERS = 10
SMALL, LARGE, TURNED, PROVIDER = "small-clinic", "large-clinic", "turned-clinic", "provider"
STYLE_OF = {SMALL: "chalk", LARGE: "neon", TURNED: "neon"}
SOURCES = tuple(style for style in STYLES if style not in STYLE_OF.values())
ENCODER = EncoderOptions(BACKBONE, "none")

_SMALL_SIZE = 100


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

    def images(self, clinic: str) -> Path:
        """Folder of a clinic's pictures."""
        return self.digits / STYLE_OF[LARGE] if clinic == LARGE else self.out / f"{clinic}-images"

    def run(self, name: str) -> Path:
        """Run folder of the provider, or of a clinic."""
        return self.out / "runs" / name

    @property
    def shared(self) -> dict[str, Any]:
        """Arguments of every training."""
        cache, options = CacheOptions(self.out / "cache"), RunOptions(self.seed, accelerator="cpu")
        return {"encoder": ENCODER, "options": options, "cache": cache, "reporter": self.reporter}


@dataclass(frozen=True)
class Visit:
    """What became of one clinic.

    Attributes:
        images: number of its pictures.
        alone: scores of clustering its pictures alone.
        provider: scores of the provider's labels as they are.
        asked: scores of clustering with the labels.
        use: use that the guard made of the labels.
        sentence: the use and its reasons.
    """

    images: int
    alone: ClusteringScores
    provider: ClusteringScores
    asked: ClusteringScores
    use: str
    sentence: str

    @property
    def gain(self) -> float:
        """Points of accuracy that asking brought."""
        return 100 * (self.asked.accuracy - self.alone.accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return the entries as JSON types."""
        return asdict(self)


def draw(place: Place) -> None:
    """Draw the digits in four styles, and make the pictures of the small clinic and of the turned one."""
    write_digits(place.digits)
    pictures = sorted((place.digits / STYLE_OF[SMALL]).rglob("*.png"))
    chosen = small_subset(np.arange(len(pictures)), _SMALL_SIZE, place.seed)
    _make_copies(place, SMALL, [pictures[number] for number in chosen], shutil.copyfile)
    _make_copies(place, TURNED, sorted((place.digits / STYLE_OF[TURNED]).rglob("*.png")), _turn)


def _make_copies(
    place: Place, clinic: str, pictures: Iterable[Path], copy: Callable[[Path, Path], object]
) -> None:
    """Copy pictures of a clinic's style into the clinic's folder."""
    theirs = place.images(clinic)
    shutil.rmtree(theirs, ignore_errors=True)
    for picture in pictures:
        target = theirs / picture.relative_to(place.digits / STYLE_OF[clinic])
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(picture, target)


def _turn(picture: Path, copy: Path) -> None:
    with Image.open(picture) as opened:
        opened.transpose(Image.Transpose.ROTATE_90).save(copy)


def visit_all(place: Place) -> dict[str, Visit]:
    """Train the provider's model, and each clinic's with and without the provider's labels.

    The small clinic and the turned one hand their pictures over and get a file of labels. The large one asks
    over HTTP, with a key that has a budget and is calibrated first; the service runs in a process of its own.

    Returns:
        What became of each clinic, by name.
    """
    shutil.rmtree(place.out / "runs", ignore_errors=True)
    provider = place.run(PROVIDER)
    place.reporter.say(f"the provider learns from {', '.join(SOURCES)}")
    train_source(place.digits, provider, N_CLUSTERS, domains=SOURCES, **place.shared)
    for clinic in STYLE_OF:
        place.reporter.say(f"the {clinic.replace('-', ' ')} clusters its pictures alone")
        alone = place.run(f"{clinic}-alone")
        train_target(place.images(clinic), alone, n_clusters=N_CLUSTERS, **place.shared)
    for clinic in (SMALL, TURNED):
        name = clinic.replace("-", " ")
        place.reporter.say(f"the {name} hands its pictures over and gets a file of labels")
        answers, cache = place.out / "runs" / f"{clinic}-labels.json", CacheOptions(place.out / "cache")
        label(provider, place.images(clinic), answers, accelerator="cpu", cache=cache)
        train_target(place.images(clinic), place.run(clinic), labels=answers, **place.shared)
    place.reporter.say("the large clinic asks the provider's service over HTTP")
    key = make_key(provider, LARGE, len(list(place.images(LARGE).rglob("*.png"))))
    with label_service(provider, key) as service:
        answers = place.out / "runs" / f"{LARGE}-labels.json"
        with LabelClient(service.url, service.key, calibrate_key=True) as client:
            query(place.images(LARGE), answers, client, reporter=place.reporter)
    train_target(place.images(LARGE), place.run(LARGE), labels=answers, **place.shared)
    # The classes are read only here, after every clinic has its clusters.
    return {clinic: _judge(place, clinic) for clinic in STYLE_OF}


def classes_of(place: Place, clinic: str, run: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the clusters ``(n,)`` that a run's model finds in a clinic's pictures, and their classes."""
    model = load(place.run(run), accelerator="cpu", cache=CacheOptions(place.out / "cache"))
    data = model.open(place.images(clinic))
    truth = read_ground_truth(data.samples)
    assert truth is not None
    return model.decide(data)[0], truth.classes


def _judge(place: Place, clinic: str) -> Visit:
    alone, classes = classes_of(place, clinic, f"{clinic}-alone")
    asked, _ = classes_of(place, clinic, clinic)
    answers = ClusterLabels.load(place.run(clinic) / LABELS_FILE)
    transfer = json.loads((place.run(clinic) / TRANSFER_FILE).read_text())
    return Visit(
        images=len(classes),
        alone=score(alone, classes),
        provider=score(answers.labels, classes),
        asked=score(asked, classes),
        use=transfer["use"],
        sentence=transfer["sentence"],
    )
