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
        self._writers: dict[str, Any] = {}
        self._purge: dict[str, int] | None = None

    def position(self) -> int:
        """Bytes written so far, all of them on disk."""
        self._file.flush()
        for writer in self._writers.values():
            writer.flush()
        return self._file.tell()

    def cut(self, position: int, stage: str = "", step: int = 0) -> None:
        """Forget what was written after ``position``.

        In TensorBoard that is everything of ``stage`` after ``step``, and all of the stages after it.
        """
        self._file.truncate(position)
        self._file.seek(position)
        self._purge = {stage: step + 1}

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Record ``figures`` of a ``kind`` ("losses", "evaluation") after ``step`` steps of ``stage``."""
        rounded = {name: round(value, 6) for name, value in figures.items()}
        self._file.write(json.dumps({"stage": stage, "step": step, "kind": kind, **rounded}).encode() + b"\n")
        for name, value in figures.items():
            self._board(stage).add_scalar(name, value, step)

    def _board(self, stage: str) -> Any:
        # A folder for each stage: TensorBoard forgets from a step on whatever the folder holds, and steps
        # begin anew with every stage.
        if stage not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            purge = None if self._purge is None else self._purge.get(stage, 0)
            self._writers[stage] = SummaryWriter(str(self._tensorboard / stage), purge_step=purge)
        return self._writers[stage]

    def close(self) -> None:
        """Put everything on disk."""
        self._file.close()
        for writer in self._writers.values():
            writer.close()
