"""A review as its page sees it: the question with its pictures, the clusters, and the map."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from ucds.data.sources import is_feature_folder
from ucds.errors import InputError, UserError
from ucds.math.arrays import IntArray
from ucds.math.exemplars import choose_beside, choose_typical
from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows
from ucds.reports.page.record import read_record
from ucds.reports.page.report import images_of
from ucds.reports.page.thumbnails import Images
from ucds.target.questions import Question
from ucds.target.review import Review
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
        self._images, ids = _open_pictures(model, review.run, images, compute.reporter)
        known = {name: i for i, name in enumerate(ids)}
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
            "images": self._images is not None,
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
            action: ``"answer"``, ``"undo"``, ``"move"``, ``"join"`` or ``"name"``.
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
                case "name":
                    self._review.name(int(values["cluster"]), str(values["name"]))
                case _:
                    raise InputError(f"unknown action {action!r}")
            return self._state()

    def picture(self, row: int) -> bytes:
        """Return the picture of a sample as JPEG.

        Raises:
            InputError: there is none.
        """
        if self._images is None or row not in self._pictures:
            raise InputError("this sample has no picture")
        pixels = self._images.read(np.array([self._pictures[row]]))[0].permute(1, 2, 0).numpy()
        file = io.BytesIO()
        Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BOX).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _state(self) -> dict[str, Any]:
        clusters = np.array(list(self._review.clusters.values()))
        question = self._next_question()
        members = {int(number): np.flatnonzero(clusters == number) for number in np.unique(clusters)}
        cards = [
            {
                "number": number,
                "size": len(rows),
                "typical": choose_typical(self._directions, self._seen(rows), _ON_CARD).tolist(),
            }
            for number, rows in members.items()
        ]
        return {
            "number": self._review.recorded,
            "answered": self._review.answered,
            "worth": self._review.worth_asking,
            "question": None if question is None else self._show(question),
            "names": self._review.names,
            "clusters": clusters.tolist(),
            "cards": cards,
        }

    def _next_question(self) -> Question | None:
        """Return the next question about a group of which something can be seen."""
        while (question := self._review.question()) is not None:
            if self._images is None or any(self._rows[name] in self._pictures for name in question.groups[0]):
                break
            self._review.answer("skip")
        return question

    def _show(self, question: Question) -> dict[str, Any]:
        """Choose the pictures that show the groups of a question."""
        groups = [np.array([self._rows[name] for name in group]) for group in question.groups]
        seen = [self._seen(group) for group in groups]
        shown = [choose_beside(self._directions, seen[0], seen[1], SHOWN)]
        shown += [choose_beside(self._directions, group, seen[0], SHOWN) for group in seen[1:]]
        return {
            "text": question.text,
            "source": question.source,
            "changes": question.changes,
            "titles": question.titles,
            "answers": question.answers,
            "sizes": [len(group) for group in groups],
            "groups": [rows.tolist() for rows in shown],
            "doubtful": groups[0].tolist(),
        }

    def _seen(self, rows: IntArray) -> IntArray:
        """Return the samples that can be seen; all, if that is true of none."""
        if self._images is None:
            return rows
        seen = rows[[row in self._pictures for row in rows.tolist()]]
        return seen if len(seen) else rows


def _open_pictures(
    model: Model, run: Path, images: Path | None, reporter: Reporter
) -> tuple[Images | None, Sequence[str]]:
    """Find the images of a run, and the ids of those that are there; ``None`` and nothing without images."""
    try:
        place = read_record(run).described.get("images")
        if place is not None and is_feature_folder(Path(place)):
            samples = model.open(place).samples
            found = images_of(samples, images)
        else:
            samples = model.open(images or read_record(run).images).samples
            found = images_of(samples, None)
    except UserError as error:
        reporter.say(f"no pictures are shown: {error}")
        return None, ()
    return found, () if found is None else samples.ids
