"""Keeps a machine-readable record of a run as JSON lines, cut back on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from ucds.files import writing


class RunLog:
    """Appends figures to a file of JSON lines.

    A run that was killed wrote lines after its last checkpoint; a resumed one will write them again.
    So the checkpoint holds the length of the log, and :meth:`cut` takes it back there.

    Args:
        path: file of JSON lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("ab")

    def position(self) -> int:
        """Write everything to disk and return the length of the log in bytes."""
        with writing(self._path):
            self._file.flush()
        return self._file.tell()

    def cut(self, position: int) -> None:
        """Remove what was written after the log had a length in bytes."""
        with writing(self._path):
            self._file.truncate(position)
            self._file.seek(position)

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Record figures.

        Args:
            stage: name of the stage.
            step: number of steps done in the stage.
            kind: kind of the figures, ``"losses"`` or ``"evaluation"``.
            figures: numbers by name.
        """
        rounded = {name: round(value, 6) for name, value in figures.items()}
        line = json.dumps({"stage": stage, "step": step, "kind": kind, **rounded})
        with writing(self._path):
            self._file.write(line.encode() + b"\n")

    def close(self) -> None:
        """Write everything to disk and close the file."""
        with writing(self._path):
            self._file.close()
