"""Defines the records of review.py, and writes their page and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Literal, TypeAlias

import matplotlib
import numpy as np
from guard import WEAK
from matplotlib.figure import Figure
from records import Records, table

from ucds.files import write_atomically

ANSWERS = 50
AT = (0, 3, 5, 10, 25, 50)
PAIRS: Literal["pairs of images"] = "pairs of images"
CHOSEN_ON = ("office31 dslr", "office31 webcam", "pacs photo", "pacs art_painting")
"""Targets on which the constants of the questions were chosen."""

Person: TypeAlias = Literal[
    "right", "5 % wrong", "10 % wrong", "20 % unknown", "K kept", "random groups", "pairs of images"
]
PERSONS: tuple[Person, ...] = (
    *("right", "5 % wrong", "random groups", "pairs of images", "10 % wrong", "20 % unknown", "K kept"),
)
WITHOUT_LABELS: tuple[Person, ...] = ("random groups", "pairs of images")
"""What labels cannot change."""


@dataclass(frozen=True)
class Run:
    """A target that was reviewed by one person.

    Attributes:
        target: data set and domain.
        part: the target's images that take part.
        client: encoder of the target.
        labels: whether a provider's labels take part.
        person: what the answers are like, or what they are about.
        seed: seed of the clusterings and of wrong answers.
        accuracy: accuracy at the start and after each answer; of pairs of images, at the numbers in ``AT``.
        purity: purity at the numbers of answers in ``AT``.
    """

    target: str
    part: str
    client: str
    labels: bool
    person: Person
    seed: int
    accuracy: tuple[float, ...]
    purity: tuple[float, ...]

    @property
    def key(self) -> tuple[str, str, str, bool, Person, int]:
        """What tells this run from the others."""
        return self.target, self.part, self.client, self.labels, self.person, self.seed

    @property
    def situation(self) -> str:
        """Name of the part and of the client's encoder."""
        return f"{self.part}, {'weak client' if self.client == WEAK else 'same encoder'}"

    @property
    def chief(self) -> bool:
        """Whether this is a whole target of photographs, seen by the provider's encoder."""
        return self.part == "whole" and self.client != WEAK and not self.target.startswith("digits")


def mean_curves(runs: Iterable[Run]) -> np.ndarray:
    """Return the mean curve over seeds of each target, in percent."""
    targets: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        targets.setdefault((run.target, run.situation), []).append(run)
    return np.array([100 * np.mean([run.accuracy for run in some], 0) for some in targets.values()])


def row(name: str, runs: Sequence[Run]) -> list[str]:
    """Write the means after some answers, the worst dip of a target's mean, and the purity at both ends."""
    curves = mean_curves(runs)
    places = range(len(AT)) if curves.shape[1] == len(AT) else AT
    dip = min(curve.min() - curve[0] for curve in curves)
    ends = [100 * mean(run.purity[end] for run in runs) for end in (0, -1)]
    seeds = min(sum(run.target == target for run in runs) for target in {run.target for run in runs})
    figures = [f"{curves.mean(0)[place]:.1f}" for place in places]
    return [name, str(len(curves)), str(seeds), *figures, f"{dip:+.1f}", f"{ends[0]:.1f}", f"{ends[1]:.1f}"]


def rows(runs: Sequence[Run], title: Callable[[Run], str]) -> str:
    """Write a table with a row for each title, alone and with labels."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(f"{title(run)}, {'with labels' if run.labels else 'alone'}", []).append(run)
    header = ["runs", "targets", "seeds", *map(str, AT), "worst dip", "purity at first", "at last"]
    return table(header, [row(name, some) for name, some in groups.items()])


INTRODUCTION = f"""# What a person's answers gain

Made by `python benchmarks/review.py` from `review.jsonl`; not edited by hand. Accuracy in percent after so
many answers: means over targets of their means over seeds. *Worst dip*: lowest point of a target's mean
curve, against its start. The clusters before a model is fitted to them; frozen features.

Answers come from the classes: a group is recognised if at least 60 % of it are of one class, and is "mixed"
otherwise; a cluster that is offered is known by its most frequent class. *Wrong*: so many of the answers are
another one, drawn at random. *Unknown*: so many are "don't know". *K kept*: the number of clusters does not
change (`--keep-clusters`). *Random groups*: right answers about a random part of a cluster and another random
cluster. *Pairs of images*: right answers whether two images are of one class, chosen and used by active
PCK-means (package `active-semi-supervised-clustering`), which starts from plain k-means.

The constants of the questions were chosen on {", ".join(CHOSEN_ON)}, with one seed;
the others confirm them or do not.

![Accuracy after 0 to 50 answers](review.svg)
"""


def write_page(script: Path, records: Records[Run]) -> None:
    """Write the page of all records, and the figure that it shows."""
    chief = [run for run in records.runs if run.chief]
    right = [run for run in records.runs if run.person == "right"]
    plain = [run for run in right if run.part == "whole" and run.client != WEAK]
    parts = [
        ("Office-31 and PACS, whole targets, the provider's encoder", rows(chief, lambda run: run.person)),
        ("By target, right answers", rows(plain, lambda run: run.target)),
        ("By situation, right answers", rows(right, lambda run: run.situation)),
    ]
    draw(chief, script.with_suffix(".svg"))
    records.write_page(INTRODUCTION + "".join(f"\n## {title}\n\n{text}\n" for title, text in parts))


LINES = {
    ("right", True): ("questions of ucds review, with a provider's labels", "#332288", "-"),
    ("right", False): ("questions of ucds review, without labels", "#117733", "-"),
    ("5 % wrong", True): ("with labels, 5 % of the answers wrong", "#332288", ":"),
    ("random groups", False): ("questions about random groups", "#666666", "--"),
}


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the mean curves of the most important runs."""
    with matplotlib.rc_context({"svg.hashsalt": "ucds", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        for (person, labels), (name, colour, style) in LINES.items():
            some = [run for run in runs if run.person == person and run.labels is labels]
            if some:
                axes.plot(mean_curves(some).mean(0), color=colour, linestyle=style, label=name)
        axes.set(xlabel="answers of a person", ylabel="accuracy (%)", xlim=(0, ANSWERS))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.35 * (high - low), high)  # room for the legend below the curves
        axes.legend(frameon=False, loc="lower right")
        write_atomically(path, lambda file: figure.savefig(file, format="svg", metadata={"Date": None}))
