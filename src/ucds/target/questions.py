"""The questions of a review, and the possible answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ucds.showing import shows

Answer: TypeAlias = int | Literal["one", "two", "new", "mixed", "skip"]

_WORDS: Mapping[Answer, str] = {
    **{"one": "One group", "two": "Two groups", "new": "A group of its own"},
    **{"mixed": "Mixed", "skip": "Don't know"},
}


@shows("text", "titles", "clusters", "groups", "source", "changes")
@dataclass(frozen=True)
class Question:
    """A question about groups of samples.

    Attributes:
        kind: ``"one-or-two"`` asks whether two groups are one, ``"place"`` where a group belongs.
        groups: ids of the samples of each group: of the two groups; or of the group in doubt, then of each
            cluster that is offered.
        clusters: numbers of the clusters of these groups, in the same order.
        titles: names of these groups for a person, in the same order.
        source: ``"labels"`` if the provider's labels speak for a change, else ``"own"``.
        changes: number of samples that the answer may move.
        records: record that each answer leaves in the file of answers; ``"skip"`` leaves none.
    """

    kind: Literal["one-or-two", "place"]
    groups: tuple[tuple[str, ...], ...]
    clusters: tuple[int, ...]
    titles: tuple[str, ...]
    source: Literal["labels", "own"]
    changes: int
    records: Mapping[Answer, Mapping[str, Any]]

    @property
    def offered(self) -> tuple[tuple[str, ...], ...]:
        """Ids of each cluster that a question of the kind ``"place"`` offers."""
        return self.groups[1:]

    @property
    def text(self) -> str:
        """The question in words."""
        if self.kind == "one-or-two":
            return "Are these one group, or two?"
        return "Where does the first group belong?"

    @property
    def answers(self) -> list[tuple[str, Answer]]:
        """Possible answers: in words, and as :meth:`ucds.target.review.Review.answer` takes them."""
        words = dict(_WORDS) | {i: f"With {title}" for i, title in enumerate(self.titles[1:])}
        return [(words[given], given) for given in (*self.records, "skip")]

    @property
    def about(self) -> str:
        """Subject of the question, as part of a sentence."""
        one, other = self.clusters[:2]
        if one in self.clusters[1:]:
            change = f"{self.changes} samples do not belong in cluster {one}"
        else:
            change = f"clusters {one} and {other} are one ({self.changes} samples)"
        who = "the provider's labels" if self.source == "labels" else "some of your own clusterings"
        return f"{who} suggest that {change}"
