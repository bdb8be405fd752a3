"""What a review asks, what can be answered, and the file of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ucds.errors import DamagedFileError, InputError
from ucds.files import parse_json
from ucds.received import read_text

ANSWERS_FILE = "answers.jsonl"
FORMAT = "ucds-answers/1"

Answer: TypeAlias = int | Literal["one", "two", "new", "mixed", "skip"]

_WORDS: Mapping[Answer, str] = {
    **{"one": "One group", "two": "Two groups", "new": "A group of its own"},
    **{"mixed": "Mixed", "skip": "Don't know"},
}


@dataclass(frozen=True)
class Question:
    """A question about groups of samples.

    Attributes:
        kind: ``"one-or-two"``: whether two groups are one; ``"place"``: where a group belongs.
        groups: ids of the samples: of the two groups; or of the group in doubt, then of each cluster that is
            offered.
        clusters: numbers of the clusters of these groups, in the same order.
        titles: names of these groups for a person, in the same order.
        source: ``"labels"`` if the provider's labels speak for a change, else ``"own"``.
        changes: number of samples that the answer may move.
        records: record that each answer but ``"skip"`` leaves in the file of answers.
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
        """What can be answered: in words, and as :meth:`ucds.target.review.Review.answer` takes it."""
        words = dict(_WORDS) | {i: f"With {title}" for i, title in enumerate(self.titles[1:])}
        return [(words[given], given) for given in (*self.records, "skip")]

    @property
    def about(self) -> str:
        """What an answer may change, as part of a sentence."""
        one, other = self.clusters[:2]
        if one == other:
            change = f"take {self.changes} samples out of cluster {one}"
        else:
            change = f"make one of clusters {one} and {other} ({self.changes} samples)"
        who = "the provider's labels" if self.source == "labels" else "some of your own clusterings"
        return f"{who} would {change}"


def read_answers(path: Path, digest: str | None) -> tuple[list[Mapping[str, Any]], int]:
    """Read a file of answers: the records that were not taken back, in their order, and the number of all.

    A last line without an end was left by a crash; the answer in it did not count, and it is dropped. With
    ``digest``, answers must start from the clusters that have it.
    """
    try:
        content = read_text(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    head, *lines = content[: content.rfind(b"\n") + 1].splitlines() or [b"{}"]
    try:
        header, records = dict(parse_json(head)), [dict(parse_json(line)) for line in lines]
        right = header.get("format") == FORMAT and all("did" in record for record in records)
    except (ValueError, TypeError):
        right = False
    if not right:
        raise DamagedFileError(f"{path} holds no answers of a review")
    if digest not in (None, header.get("clusters")):
        raise DamagedFileError(f"{path} belongs to other clusters: move it away, or give it with --answers")
    kept: list[Mapping[str, Any]] = []
    for record in records:
        if record["did"] != "undone":
            kept.append(record)
        elif kept:
            kept.pop()
    return kept, len(records)
