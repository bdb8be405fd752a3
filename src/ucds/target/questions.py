"""What a review asks, what can be answered, and the file of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ucds.errors import DamagedFileError, InputError
from ucds.files import parse_json

ANSWERS_FILE = "answers.jsonl"
FORMAT = "ucds-answers/1"

Answer: TypeAlias = int | Literal["one", "two", "new", "mixed", "skip"]
Decision: TypeAlias = tuple[Literal["kept", "placed", "separated", "mixed"], int | None]
"""What is done with the group in doubt, and the cluster that it goes to."""


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
    """

    kind: Literal["one-or-two", "place"]
    groups: tuple[tuple[str, ...], ...]
    clusters: tuple[int, ...]
    titles: tuple[str, ...]
    source: Literal["labels", "own"]
    changes: int

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
        always: list[tuple[str, Answer]] = [("Mixed", "mixed"), ("Don't know", "skip")]
        if self.kind == "one-or-two":
            return [("One group", "one"), ("Two groups", "two"), *always]
        offered = [(f"With {title}", i) for i, title in enumerate(self.titles[1:])]
        return [*offered, ("A group of its own", "new"), *always]

    @property
    def about(self) -> str:
        """What an answer may change, as part of a sentence."""
        one, other = self.clusters[:2]
        if one == other:
            change = f"take {self.changes} samples out of cluster {one}"
        else:
            change = f"make one of clusters {one} and {other} ({self.changes} samples)"
        if self.source == "labels":
            return f"the provider's labels would {change}"
        return f"some of your own clusterings would {change}"

    def decide(self, given: Answer) -> Decision:
        """Translate an answer into what is done with the group in doubt.

        Raises:
            InputError: the question has no such answer.
        """
        own, *others = self.clusters
        places: list[Decision] = [("kept", None) if one == own else ("placed", one) for one in others]
        apart: Decision = ("separated" if own == others[0] else "kept", None)
        decisions: dict[Answer, Decision] = {"mixed": ("mixed", None)}
        if self.kind == "one-or-two":
            decisions |= {"one": places[0], "two": apart}
        else:
            decisions |= {"new": apart}
            decisions |= dict(enumerate(places))
        if isinstance(given, bool) or given not in decisions:
            raise InputError(f"{given!r} is no answer to a question of the kind {self.kind!r}")
        return decisions[given]


def read_answers(path: Path, digest: str | None) -> Iterator[dict[str, Any]]:
    """Read the records of a file of answers, in their order; none if there is no such file of a run.

    A last line without an end was left by a crash; the answer in it did not count, and it is dropped. With
    ``digest``, answers must start from the clusters that have it.
    """
    if digest is not None and not path.exists():
        return
    try:
        content = path.read_bytes()
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
    if digest is not None and header.get("clusters") != digest:
        raise DamagedFileError(f"{path} belongs to other clusters: move it away, or give it with --answers")
    yield from records


def effective(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records that were not taken back."""
    found: list[Mapping[str, Any]] = []
    for record in records:
        if record["did"] != "undone":
            found.append(record)
        elif found:
            found.pop()
    return found
