"""Readers of files, and damages of the files that they read."""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ucds.errors import UserError


class Reader(NamedTuple):
    """A pattern of a file's name, the way to write a good file into a folder, and the way to read it."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


def file(name: str, content: str | bytes, read: Callable[[Path], object]) -> Reader:
    """The reader of one file with this content."""
    data = content.encode() if isinstance(content, str) else content
    return Reader(name, lambda folder: (folder / name).write_bytes(data), lambda folder: read(folder / name))


def saved(save: Callable[..., object], **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


_VALUE = re.compile(rb'"[^"]*"|-?\d+(\.\d+)?|true|false|null')
_OTHER_VALUES = rb'null 1e999 -1 999999999999999999999999999999 NaN [] {} true "" "\ud800"'.split()


@dataclass(frozen=True)
class Damage:
    """A change of a file, small enough to be printed."""

    kind: str
    place: float
    data: bytes
    value: bytes

    def of(self, whole: bytes) -> bytes:
        """Other contents, or these with a change at some place."""
        at = int(self.place * len(whole))
        if self.kind == "value":
            values = [found.span() for found in _VALUE.finditer(whole)] or [(at, at)]
            start, end = values[int(self.place * len(values))]
            return whole[:start] + self.value + whole[end:]
        return {
            "other": self.data,
            "change": whole[:at] + self.data + whole[at + len(self.data) :],
            "cut": whole[:at],
            "insert": whole[:at] + self.data + whole[at:],
            "double": whole[:at] + whole[at // 2 :],
            "nest": whole[:at] + b"[" * 5000 + whole[at:],
        }[self.kind]


DAMAGES = st.builds(
    Damage,
    st.sampled_from(["value", "other", "change", "cut", "insert", "double", "nest"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(max_size=40),
    st.sampled_from(_OTHER_VALUES),
)


def refusal_of(reader: Reader, folder: Path) -> str:
    """The reason why a file is refused; nothing if it is read."""
    try:
        reader.read(folder)
    except UserError as error:
        return str(error)
    return ""


def check(reader: Reader, folder: Path, examples: int, *, same: bool) -> None:
    """Damage a file of one kind many times, and read it."""
    reader.write(folder)
    (path,) = folder.glob(reader.name)
    whole = path.read_bytes()
    reader.read(folder)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=same,
        suppress_health_check=list(HealthCheck),
    )
    @given(DAMAGES)
    def read_damaged(damage: Damage) -> None:
        path.write_bytes(damage.of(whole))
        with warnings.catch_warnings(action="ignore"):
            assert "\n" not in refusal_of(reader, folder)

    read_damaged()
