"""A review as its page sees it: the question with its pictures or texts, the clusters, and the map."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ucds.data.columns import read_texts
from ucds.data.content import find_places
from ucds.data.features import Pictures
from ucds.errors import InputError, UserError
from ucds.math.arrays import IntArray
from ucds.math.exemplars import choose_beside, choose_typical
from ucds.math.plane import place_all
from ucds.math.spaces import unit_rows
from ucds.reports.page.findings import read_record
from ucds.reports.page.report import images_of
from ucds.reports.page.thumbnails import Images, resize
from ucds.target.questions import Question
from ucds.target.review import Review
from ucds.training.loaded import load
from ucds.training.options import Compute
from ucds.training.run_folder import require_same_samples

SHOWN = 8
"""Pictures of a group: typical ones, and those nearest to the other group."""

_ON_CARD = 6
_SIDE = 128  # pixels of a picture


class Session:
    """A review, with pictures or texts of its samples."""

    def __init__(self, review: Review, moved: Path | None, pictures: Path | None, compute: Compute) -> None:
        self.review, self._ids = review, review.start.ids
        self._directions = unit_rows(review.features)
        self._images: Images | None = None
        self._texts: Mapping[str, str] = {}
        self._pictures = np.full(len(self._ids), -1)  # position of each sample's picture, if it has one
        model = load(review.run, role="target", compute=compute)
        try:
            record = read_record(review.run)
            place = moved or record.images
            samples = model.open(place).samples
            if moved is None:
                require_same_samples(record.described, samples.fingerprint)
            self._images, self._texts = images_of(samples, pictures), read_texts(place)
            if self._images is not None:
                self._pictures = find_places(self._ids, samples.ids)
            if isinstance(self._images, Pictures):
                there = [place >= 0 and self._images.is_there(place) for place in self._pictures.tolist()]
                self._pictures = np.where(there, self._pictures, -1)
        except UserError as error:
            compute.reporter.say(f"no pictures are shown: {error}")
        compute.reporter.say("drawing the map")
        points, _ = place_all(review.features, model.stored.head.prototypes, 0)
        low, high = points.min(0), points.max(0)
        self._points = (1000 * (points - low) / np.maximum(high - low, 1e-9)).round().astype(int)

    def fixed(self) -> dict[str, Any]:
        """Return what no answer changes: ids, texts, and places of the samples on the map, 0 to 1000."""
        return {
            "run": self.review.run.name,
            "ids": self._ids,
            "texts": [self._texts.get(name) for name in self._ids] if self._texts else None,
            "x": self._points[:, 0].tolist(),
            "y": self._points[:, 1].tolist(),
            "pictures": np.flatnonzero(self._pictures >= 0).tolist(),
        }

    def state(self) -> dict[str, Any]:
        """Return what answers change: the question, the cluster of every sample, and the clusters' cards."""
        question = self._next_question()
        clusters, cards = np.array(list(self.review.clusters.values())), []
        for number in np.unique(clusters).tolist():
            rows = np.flatnonzero(clusters == number)
            typical = choose_typical(self._directions, self._seen(rows), _ON_CARD).tolist()
            cards.append({"number": number, "size": len(rows), "typical": typical})
        return {
            "number": self.review.recorded,
            "answered": self.review.answered,
            "worth": self.review.worth_asking,
            "question": None if question is None else self._show(question),
            "names": self.review.names,
            "clusters": clusters.tolist(),
            "cards": cards,
        }

    def tell(self, action: str, values: Mapping[str, Any]) -> None:
        """Carry out what a person said."""
        match action:
            case "answer":
                self.review.answer(values.get("answer", ""))
            case "undo":
                self.review.undo()
            case "move":
                self.review.move([self._ids[int(row)] for row in values["rows"]], int(values["to"]))
            case "join":
                self.review.join(int(values["one"]), int(values["other"]))
            case "name":
                self.review.name(int(values["cluster"]), str(values["name"]))
            case _:
                raise InputError(f"unknown action {action!r}")

    def picture(self, row: int) -> bytes:
        """Return the picture of a sample as JPEG."""
        if self._images is None or self._pictures[row] < 0:
            raise InputError("this sample has no picture")
        pixels = self._images.read(self._pictures[[row]])[0].transpose(1, 2, 0)
        file = io.BytesIO()
        Image.fromarray(resize(pixels, _SIDE)).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _next_question(self) -> Question | None:
        """Return the next question about a group of which something can be seen."""
        pictured = self._pictures >= 0
        while (question := self.review.question()) is not None and pictured.any():
            if pictured[self.review.rows(question.groups[0])].any():
                break
            self.review.answer("skip")
        return question

    def _show(self, question: Question) -> dict[str, Any]:
        """Choose the pictures that show the groups of a question."""
        groups = [self.review.rows(group) for group in question.groups]
        seen = [self._seen(group) for group in groups]
        return {
            "text": question.text,
            "source": question.source,
            "changes": question.changes,
            "titles": question.titles,
            "answers": question.answers,
            "sizes": [len(group) for group in groups],
            "groups": [rows.tolist() for rows in choose_beside(self._directions, seen, SHOWN)],
            "doubtful": groups[0].tolist(),
        }

    def _seen(self, rows: IntArray) -> IntArray:
        """Return the samples that have a picture; all, if none of them has one."""
        seen = rows[self._pictures[rows] >= 0]
        return seen if len(seen) else rows
