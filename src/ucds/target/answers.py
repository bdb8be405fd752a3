"""The file of answers: every action of a review, one a line, by ids and contents of samples."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ucds.errors import DamagedFileError, InputError
from ucds.files import append_line, parse_json, write_atomically
from ucds.math.corrections import Change
from ucds.received import read_text
from ucds.target.remembered import Remembered

ANSWERS_FILE = "answers.jsonl"
FORMAT = "ucds-answers/1"

Record = Mapping[str, Any]
"""A record: ``did`` says what was done; ``group``, ``to``, ``others`` and ``groups`` hold ids of samples;
``keys`` the contents of samples that no earlier line names; ``first`` the least number of a new cluster."""

_ACTIONS = {*get_args(Change), "joined", "divided", "aside", "named", "undone", "redone"}


@dataclass
class Answers:
    """Contents of a file of answers. Two clusters never have the same number, even if one was undone."""

    kept: list[Record] = field(default_factory=list)  # those that count, in their order
    undone: list[Record] = field(default_factory=list)  # those that can be done again, the next one last
    recorded: int = 0  # number of all records
    first: int = 0  # least number of a new cluster
    keys: dict[str, str] = field(default_factory=dict)  # content of each named sample, in hexadecimal, by id

    def add(self, record: Record) -> None:
        """Add a record, which takes effect, or undoes or redoes another record."""
        self.recorded += 1
        self.first = max(self.first, record.get("first", 0))
        self.keys.update(record.get("keys", {}))
        match record["did"]:
            case "undone" if self.kept:
                self.undone.append(self.kept.pop())
            case "redone" if self.undone:
                self.kept.append(self.undone.pop())
            case "undone" | "redone":
                pass
            case _:
                self.undone.clear()
                self.kept.append({name: value for name, value in record.items() if name != "keys"})

    def write(self, path: Path, record: Record, start: Remembered) -> None:
        """Append a record to the file, and let it count; it is on the disk when this returns, or refused."""
        if not os.path.lexists(path):  # at once: a kill may not leave a file without its first line
            head = json.dumps({"format": FORMAT, "clusters": start.digest}) + "\n"
            write_atomically(path, lambda file: file.write(head.encode()), is_private=True)
        new = {name for names in names_in(record) for name in names} - self.keys.keys()
        keys = {name: start.keys[start.places[name]].hex() for name in sorted(new)}
        record = {**record, "number": self.recorded + 1, "first": self.first} | (
            {"keys": keys} if keys else {}
        )
        append_line(path, json.dumps(record))
        self.add(record)

    def for_samples(self, start: Remembered) -> list[Record]:
        """Return the records in force, with the ids that their samples have in another run.

        Samples are matched by their contents. If none matches, as with embeddings by another encoder, they
        are matched by their ids. Samples that the other run lacks are left out, so a record may have no ids.
        """
        ids = {key.hex(): name for name, key in zip(reversed(start.ids), reversed(start.keys), strict=True)}
        same = {name: ids[key] for name, key in self.keys.items() if key in ids}
        for name, key in self.keys.items():
            if (place := start.places.get(name)) is not None and start.keys[place].hex() == key:
                same[name] = name  # of copies, the one of that name
        if not same:
            same = {name: name for name in start.ids}
        same = {name: name for name in start.places.keys() - self.keys.keys()} | same
        return [_renamed(record, same) for record in self.kept]


def names_in(record: Record) -> Iterator[list[str]]:
    """Yield each list of ids in a record."""
    yield from (record[name] for name in ("group", "to") if name in record)
    yield from (names for name in ("others", "groups") for names in record.get(name, ()))


def _renamed(record: Record, same: Mapping[str, str]) -> Record:
    def rename(names: list[str]) -> list[str]:
        return [same[name] for name in names if name in same]

    flat = {name: rename(record[name]) for name in ("group", "to") if name in record}
    deep = {name: list(map(rename, record[name])) for name in ("others", "groups") if name in record}
    kept = {name: record[name] for name in ("did", "whole", "name", "into", "cut") if name in record}
    return kept | flat | deep


def meaning(record: Record) -> str:
    """Return what a record says, without its place in a file."""
    return json.dumps({name: record[name] for name in sorted(record.keys() - {"number", "first", "keys"})})


def read_answers(path: Path, digest: str | None) -> Answers:
    """Read a file of answers; with a ``digest``, the answers must start from the clusters with this digest.

    A last line without a line feed was left by a crash. It is dropped, because its answer did not count.
    """
    try:
        content = read_text(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    head, *lines = content[: content.rfind(b"\n") + 1].splitlines() or [b"{}"]
    answers = Answers()
    try:
        header = dict(parse_json(head))
        right = header.get("format") == FORMAT
        for line in lines if right else ():
            record = dict(parse_json(line))
            right &= _is_right(record)
            answers.add(record)
    except (ValueError, TypeError, KeyError, AttributeError):
        right = False
    if not right:
        raise DamagedFileError(f"{path} holds no answers of a review")
    if digest not in (None, header.get("clusters")):
        raise DamagedFileError(
            f"{path} holds answers about other clusters: move it away, or give it as `answers`"
        )
    return answers


def _is_right(record: Record) -> bool:
    """Return whether a record names an action, and samples in lists of texts."""
    texts = [*record.get("keys", {}).values(), record.get("name", "")]
    texts += [
        name for names in names_in(record) for name in ([*names] if isinstance(names, list) else [None])
    ]
    numbers = [record.get("first", 0), *record.get("into", ())]
    return (
        record["did"] in _ACTIONS
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(number, int) and number >= 0 for number in numbers)
    )
