"""A review as its page sees it: samples, clusters as they stand, and what a person does."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ucds.data.content import find_places
from ucds.data.features import Pictures
from ucds.data.folders import Scan
from ucds.errors import InputError, UserError, brief
from ucds.math.arrays import IntArray
from ucds.math.exemplars import choose_beside
from ucds.page.findings import place_remembered, read_record
from ucds.page.render import describe_part, percent, places_of, render_about
from ucds.page.report import gather, images_of
from ucds.page.thumbnails import Images, resize
from ucds.target.known import Gathered, open_known, places_in
from ucds.target.questions import Question
from ucds.target.review import Review
from ucds.training.loaded import load
from ucds.training.options import Compute
from ucds.training.run_folder import MAP_FILE

SHOWN = 8
"""Pictures of a group in a question: typical ones, and those nearest to the other group."""

NEAR = 30
"""Number of samples that are shown as similar to others."""


class Session:
    """A review, which :meth:`tell` alone changes, with pictures or texts of its samples."""

    def __init__(self, review: Review, moved: Path | None, pictures: Path | None, compute: Compute) -> None:
        self.review, self._ids = review, review.start.ids
        self._moved, self._root, self._compute = moved, pictures, compute.silent()
        self._images: Images | None = None
        self.files: Scan | None = None  # where the images lie, to be sorted
        self.texts: Mapping[str, str] = {}  # by id
        self._pictures = np.full(len(self._ids), -1)  # position of each sample's picture, if it has one
        self.left_out, self._what = 0, "samples"  # samples of the run that are not in the review
        described = read_record(review.run).described
        self.place = next(iter([moved] if moved else places_in(described)), None)
        try:
            model = load(review.run, role="target", compute=compute)
            opened = open_known(model, described, review.start, moved)
            samples, self.texts = opened.data.samples, opened.texts
            self.left_out = int((find_places(samples.ids, self._ids) < 0).sum())
            self._what = "samples" if samples.kind == "embeddings" else "images"
            self.files, self._images = samples.files, images_of(samples, pictures)
            if self._images is not None:
                self._pictures = find_places(self._ids, samples.ids)
            if isinstance(self._images, Pictures | Gathered):
                there = [place >= 0 and self._images.is_there(place) for place in self._pictures.tolist()]
                self._pictures = np.where(there, self._pictures, -1)
            for sentence in opened.told:
                compute.reporter.say(sentence)
        except UserError as error:
            compute.reporter.say(f"no pictures are shown: {error}")

    def fixed(self) -> dict[str, Any]:
        """Return what no action changes: ids, texts, labels, and which samples have no picture."""
        labels, seen = self.review.labels, self._pictures >= 0
        return {
            "title": f"Review of {self.review.run.name}",
            "run": self.review.run.name,
            "what": self._what.removesuffix("s"),
            "ids": self._ids,
            "texts": [self.texts.get(name) for name in self._ids] if self.texts else None,
            "pictures": "server" if seen.any() else "",
            "missing": np.flatnonzero(~seen).tolist() if seen.any() else [],
            "labels": None if labels is None else labels.tolist(),
            "placed": (self.review.run / MAP_FILE).exists(),
            "sortable": self.files is not None,
            **describe_part(len(self._ids), len(self._ids) + self.left_out, self._what),
        }

    def map(self) -> dict[str, Any]:
        """Place the samples on the map; the first time this may take long, and no action changes it."""
        return places_of(place_remembered(self.review.run, self.review.features))

    def about(self) -> dict[str, Any]:
        """Write what is known of the run, as a report does; this may take long."""
        facts = gather(self.review.run, self._moved, pictures=self._root, compute=self._compute)
        rows = find_places(facts.findings.ids, self._ids).tolist()
        return {"html": render_about(facts, rows)}

    def state(self) -> dict[str, Any]:
        """Return what actions change: the clusters, how sure they are, and their names."""
        review, seen = self.review, self.review.seen
        return {
            "number": review.recorded,
            "answered": review.answered,
            "can_undo": review.answered > 0,
            "can_redo": review.can_redo,
            "names": review.names,
            "clusters": seen.clusters.tolist(),
            "sure": percent(seen.confidence),
            "second": seen.second.tolist(),
            "typical": percent(10 * np.maximum(seen.typicality, 0)),
        }

    def question(self) -> dict[str, Any]:
        """Return the open question; to find it takes longer than to carry out an action."""
        question, number = self._next_question(), self.review.recorded
        shown = None if question is None else self._show(question)
        return {"of": number, "question": shown, "worth": self.review.worth_asking}

    def tell(self, action: str, values: Mapping[str, Any]) -> None:
        """Carry out what a person did; it is on the disk when this returns."""
        review, rows = self.review, self._names(values.get("rows", []))
        match action:
            case "move":
                review.move(rows, "new" if values["to"] == "new" else int(values["to"]))
            case "aside":
                review.aside(rows)
            case "join":
                review.join([int(number) for number in values["clusters"]])
            case "split":
                review.split(int(values["cluster"]), int(values["parts"]))
            case "cut":
                review.cut(int(values["n"]))
            case "name":
                review.name(int(values["cluster"]), str(values["name"]))
            case "answer":
                review.answer(values.get("answer", ""))
            case "undo":
                review.undo()
            case "redo":
                review.redo()
            case _:
                raise InputError(f"there is no action {brief(action)}")

    def preview(self, action: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the clusters that a split, or another number of clusters, would make; nothing changes."""
        if action == "split":
            made = self.review.split(int(values["cluster"]), int(values["parts"]), take=False)
        else:
            made = self.review.cut(int(values["n"]), take=False)
        typical = self.review.seen.typicality.copy()
        for number in made.origins:  # the middle of a group that is new is another one
            rows = made.rows(number)
            typical[rows] = self.review.seen.nearness(rows)
        clusters, origins = made.partition.tolist(), made.origins
        return {"clusters": clusters, "typical": percent(10 * np.maximum(typical, 0)), "origins": origins}

    def cuts(self) -> dict[str, int]:
        """Return the least and the most clusters that a person can choose, and the number as it stands."""
        least, most = self.review.cuts
        return {"least": least, "most": most, "now": len(self.review.seen.numbers)}

    def suggest(self, cluster: int) -> dict[str, Any]:
        """Propose names of a cluster."""
        return {"words": self.review.suggest(self.texts or None).get(cluster, [])}

    def like(self, rows: Sequence[Any] | None, picture: bytes | None = None) -> dict[str, Any]:
        """Find the samples that are most like some rows, or like a picture that is not kept."""
        if rows is None:
            near = self.review.like_picture(picture, NEAR)
        else:
            near = self.review.like(self._names(rows), NEAR)
        return {"rows": near.rows.tolist()}

    def picture(self, row: int, side: int) -> bytes:
        """Return the picture of a sample as JPEG, of ``side`` pixels a side."""
        if self._images is None or self._pictures[row] < 0:
            raise InputError("this sample has no image to show")
        pixels = self._images.read(self._pictures[[row]])[0].transpose(1, 2, 0)
        file = io.BytesIO()
        Image.fromarray(resize(pixels, min(side, 256))).save(file, "JPEG", quality=80)
        return file.getvalue()

    def _names(self, rows: Sequence[Any]) -> list[str]:
        return [self._ids[int(row)] for row in rows]

    def _next_question(self) -> Question | None:
        """Return the next question about a group that can be shown."""
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
            "doubtful": groups[0].tolist(),
            "groups": [rows.tolist() for rows in choose_beside(self.review.directions, seen, SHOWN)],
        }

    def _seen(self, rows: IntArray) -> IntArray:
        """Return the samples that have a picture; all, if none of them has one."""
        seen = rows[self._pictures[rows] >= 0]
        return seen if len(seen) else rows


class Task:
    """Work in the background, one piece at a time, and its progress."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"running": False}

    def start(self, work: Callable[[Callable[[str, int, int], None]], str]) -> None:
        """Begin some work, which is given a function to tell its progress to, and returns what it did."""
        if self.state["running"]:
            raise InputError("earlier work is still under way: wait until it ends")
        self.state = {"running": True, "title": "writing", "at": 0, "total": 0}
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[Callable[[str, int, int], None]], str]) -> None:
        def watch(title: str, done: int, total: int) -> None:
            self.state = {
                "running": True,
                "title": f"{title}: {done:,} of {total:,}",
                "at": done,
                "total": total,
            }

        try:
            self.state = {"running": False, "done": work(watch)}
        except Exception as error:  # the person sees it in the page
            self.state = {"running": False, "error": str(error) or type(error).__name__}
