"""Keeps a machine-readable record of a run: JSON lines and TensorBoard, cut back on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class RunLog:
    """Appends to ``log.jsonl`` and TensorBoard.

    A run that was killed wrote lines after its last checkpoint; a resumed one will write them again.
    So the checkpoint remembers how long the log was, and :meth:`cut` takes it back there.
    """

    def __init__(self, path: Path, tensorboard: Path) -> None:
        self._file: IO[bytes] = path.open("ab")
        self._tensorboard = tensorboard
        self._writer: Any = None
        self._purge: int | None = None

    def position(self) -> int:
        """Bytes written so far, all of them on disk."""
        self._file.flush()
        return self._file.tell()

    def cut(self, position: int, step: int) -> None:
        """Forget what was written after ``position``, and in TensorBoard from ``step`` on."""
        self._file.truncate(position)
        self._file.seek(position)
        self._purge = step

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Record ``figures`` of a ``kind`` ("losses", "evaluation") after ``step`` steps of ``stage``."""
        rounded = {name: round(value, 6) for name, value in figures.items()}
        self._file.write(json.dumps({"stage": stage, "step": step, "kind": kind, **rounded}).encode() + b"\n")
        for name, value in figures.items():
            self._board().add_scalar(f"{stage}/{name}", value, step)

    def _board(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._tensorboard), purge_step=self._purge)
        return self._writer

    def close(self) -> None:
        """Put everything on disk."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()
