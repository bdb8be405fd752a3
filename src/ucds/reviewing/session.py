"""A review as its page sees it: the question with its pictures, the clusters, and the map."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from ucds.data.images import ImageSamples
from ucds.errors import InputError, UserError
from ucds.math.arrays import IntArray
from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows
from ucds.reports.page.record import read_record
from ucds.target.review import Question, Review
from ucds.training.loaded import Model, load
from ucds.training.options import Compute
from ucds.training.progress import Reporter

SHOWN = 8
"""Pictures of a group: typical ones, and those nearest to the other group."""

_ON_CARD = 6
_SIDE = 128  # pixels of a picture


class StaleError(InputError):
    """The page did not know of the last answer; it must be loaded again."""


class Session:
    """A review, with pictures of its samples; several windows may use it at the same time.

    Args:
        review: review.
        images: samples of the run, if they are no longer where the run found them; ``None`` if they are.
        compute: cache of decoded images, and receiver of progress messages.
    """

    def __init__(self, review: Review, images: Path | None, compute: Compute) -> None:
        self._review, self._lock = review, Lock()
        self._rows = {name: i for i, name in enumerate(review.clusters)}
        self._ids = tuple(self._rows)
        self._directions = unit_rows(review.features)
        model = load(review.run, role="target", compute=compute)
        self._samples = _open_pictures(model, review.run, images, compute.reporter)
        known = {} if self._samples is None else {name: i for i, name in enumerate(self._samples.ids)}
        self._pictures = {row: known[name] for name, row in self._rows.items() if name in known}
        compute.reporter.say("drawing the map")
        stars = model.stored.model.prototypes.detach().cpu().numpy()
        points, _ = place_all(review.features, stars, 0)
        low, high = points.min(0), points.max(0)
        self._points = (1000 * (points - low) / np.maximum(high - low, 1e-9)).round().astype(int)

    def fixed(self) -> dict[str, Any]:
        """Return what no answer changes: ids, and the places of the samples on the map, 0 to 1000."""
        return {
            "run": self._review.run.name,
            "ids": self._ids,
            "x": self._points[:, 0].tolist(),
            "y": self._points[:, 1].tolist(),
            "pictures": sorted(self._pictures),
        }

    def state(self) -> dict[str, Any]:
        """Return what answers change: the question, the cluster of every sample, and the clusters' cards."""
        with self._lock:
            return self._state()

    def tell(self, number: int, action: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what a person said, and return the new state.

        Args:
            number: number of answers that the page knew of.
            action: ``"answer"``, ``"undo"``, ``"move"``, ``"join"`` or ``"finish"``.
            values: details of the action, by name: the answer, or samples and clusters.

        Raises:
            StaleError: another window has answered meanwhile.
            InputError: the action or its values are unknown.
            NoSpaceError: it cannot be written.
        """
        with self._lock:
            if number != self._review.recorded:
                raise StaleError("another window has answered meanwhile")
            match action:
                case "answer":
                    self._review.answer(values.get("answer", ""))
                case "undo":
                    self._review.undo()
                case "move":
                    self._review.move([self._ids[int(row)] for row in values["rows"]], int(values["to"]))
                case "join":
                    self._review.join(int(values["one"]), int(values["other"]))
                case _:
                    raise InputError(f"unknown action {action!r}")
            return self._state()

    def picture(self, row: int) -> bytes:
        """Return the picture of a sample as JPEG.

        Raises:
            InputError: there is none.
        """
        if self._samples is None or row not in self._pictures:
            raise InputError("this sample has no picture")
        pixels = self._samples.read(np.array([self._pictures[row]]))[0].permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BOX).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _state(self) -> dict[str, Any]:
        clusters = np.array(list(self._review.clusters.values()))
        question = self._review.question()
        cards = [
            {"number": int(number), "size": int(size), "typical": self._typical(clusters == number, _ON_CARD)}
            for number, size in zip(*np.unique(clusters, return_counts=True), strict=True)
        ]
        return {
            "number": self._review.recorded,
            "answered": self._review.answered,
            "worth": self._review.worth_asking,
            "question": None if question is None else self._show(question),
            "clusters": clusters.tolist(),
            "cards": cards,
        }

    def _show(self, question: Question) -> dict[str, Any]:
        """Choose the pictures that show the groups of a question."""
        groups = [np.array([self._rows[name] for name in group]) for group in question.groups]
        shown = [self._choose(groups[0], groups[1])] + [self._choose(g, groups[0]) for g in groups[1:]]
        return {
            "kind": question.kind,
            "source": question.source,
            "changes": question.changes,
            "clusters": question.clusters,
            "sizes": [len(group) for group in groups],
            "groups": shown,
        }

    def _choose(self, group: IntArray, other: IntArray) -> list[int]:
        """Choose typical samples of a group, and those of its samples that are nearest to another group."""
        inside = np.zeros(len(self._ids), bool)
        inside[group] = True
        typical = self._typical(inside, SHOWN // 2)
        nearness = self._directions[group] @ self._directions[other].mean(0)
        near = [int(row) for row in group[np.argsort(-nearness, kind="stable")] if int(row) not in typical]
        return typical + near[: SHOWN - len(typical)]

    def _typical(self, inside: np.ndarray[Any, Any], most: int) -> list[int]:
        rows = np.flatnonzero(inside)
        nearness = self._directions[rows] @ self._directions[rows].mean(0)
        return [int(row) for row in rows[np.argsort(-nearness, kind="stable")][:most]]


def _open_pictures(model: Model, run: Path, images: Path | None, reporter: Reporter) -> ImageSamples | None:
    """Open the images of a run; ``None`` if it has none, or they are gone."""
    try:
        samples = model.open(read_record(run).images if images is None else images).samples
    except UserError as error:
        reporter.say(f"no pictures are shown: {error}")
        return None
    return samples if isinstance(samples, ImageSamples) else None
