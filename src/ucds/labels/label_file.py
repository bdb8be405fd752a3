"""The file of cluster labels: its form, and how it is written.

It is JSON, so that a person can read it before handing it over.

A file of a million labels is written piece by piece, and its digest is taken on the way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ucds.files import write_atomically
from ucds.labels.wire import MOST_CLUSTERS, Clusters, Digest, Message

FORMAT = "ucds-labels/2"
_AT_A_TIME = 10_000  # entries that are written as one piece


class LabelFile(Message):
    """A label file as it is stored. Files of version 1, which other programs may write, have no digest."""

    format: Literal["ucds-labels/1", "ucds-labels/2"]
    provider: str
    n_clusters: Clusters
    ids: list[str]
    labels: list[Annotated[int, Field(ge=-1, le=MOST_CLUSTERS)]]
    contents: list[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]] | None = None
    noise: Annotated[float, Field(ge=0)] | None = None
    digest: Digest | None = None


def write_label_file(
    path: Path,
    provider: str,
    n_clusters: int,
    ids: Sequence[str],
    labels: NDArray[np.int64],
    contents: Sequence[str] | None,
    noise: float | None = None,
) -> None:
    """Write a label file, all of it or none; the arguments are the entries of the file.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    fields = {"format": FORMAT, "provider": provider, "n_clusters": n_clusters, "ids": ids, "labels": labels}
    fields |= {} if contents is None else {"contents": contents}
    fields |= {} if noise is None else {"noise": noise}
    whole = fields | {"digest": digest_of_fields(dict(sorted(fields.items())))}
    pieces = chain(_pieces(whole, _in_lines, "\n", ": "), ("\n",))
    write_atomically(path, lambda file: file.writelines(piece.encode() for piece in pieces))


def digest_of_fields(fields: Mapping[str, Any]) -> str:
    """Compute the digest of entries in the form of :func:`ucds.labels.wire.canonical_json`."""
    digest = hashlib.sha256()
    for piece in _pieces(fields, _compact, "", ":"):
        digest.update(piece.encode())
    return digest.hexdigest()


def _pieces(fields: Mapping[str, Any], dump: Callable[[Any], str], line: str, colon: str) -> Iterator[str]:
    """Return an iterator over the pieces of fields in JSON; no column becomes a text as a whole."""
    for place, (name, value) in enumerate(fields.items()):
        yield f"{',' if place else '{'}{line}{dump(name)}{colon}"
        if value is None or isinstance(value, str | int | float):
            yield dump(value)
            continue
        for start in range(0, len(value), _AT_A_TIME):
            part = value[start : start + _AT_A_TIME]
            written = dump(part.tolist() if isinstance(part, np.ndarray) else list(part))
            yield f"{',' if start else '['}{line}{written[1:-1]}"
        yield f"{line}]"
    yield f"{line}}}"


def _in_lines(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",\n", ": "))  # indent would be ten times slower


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
