"""The first questions of a review, for a page that takes the answers down and cannot follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ucds.math.arrays import FloatArray
from ucds.math.exemplars import choose_beside
from ucds.math.spaces import unit_rows
from ucds.target.questions import FORMAT, Question
from ucds.target.review import Review

MOST = 10
"""Questions on a page."""

_EACH = 8  # samples of a group


@dataclass(frozen=True)
class Asked:
    """A question on a page.

    Attributes:
        question: the question.
        shown: for each of its groups, positions on the page of some samples.
        records: words of each answer, with the record that it leaves.
    """

    question: Question
    shown: list[list[int]]
    records: list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Questions:
    """The first questions of a review.

    Attributes:
        outlook: a sentence that says how many questions are open; empty if the run cannot be reviewed.
        asked: the questions.
        header: first line of a file of answers to them.
    """

    outlook: str = ""
    asked: list[Asked] = field(default_factory=list)
    header: dict[str, str] = field(default_factory=dict)


def find_questions(review: Review, ids: Sequence[str], features: FloatArray) -> Questions:
    """Choose the first questions of a review, and samples that show their groups.

    Args:
        review: review of the run.
        ids: id of each sample on the page.
        features: ``(n, d)`` features of the samples on the page.
    """
    places = {name: i for i, name in enumerate(ids)}
    directions, asked = unit_rows(features), []
    for question, records in review.foresee(MOST):
        groups = [
            np.array([places[name] for name in group if name in places], np.int64)
            for group in question.groups
        ]
        if all(map(len, groups)):
            others = [groups[1], *(groups[0] for _ in groups[1:])]
            shown = [
                choose_beside(directions, *pair, _EACH).tolist() for pair in zip(groups, others, strict=True)
            ]
            asked.append(Asked(question, shown, records))
    return Questions(review.outlook, asked, {"format": FORMAT, "clusters": review.digest})
