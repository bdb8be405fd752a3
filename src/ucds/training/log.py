"""Keeps a machine-readable record of a run: JSON lines and TensorBoard, cut back on resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from ucds.files import writing


class RunLog:
    """Appends figures to a file of JSON lines, and to TensorBoard if it is installed.

    A run that was killed wrote lines after its last checkpoint; a resumed one will write them again.
    So the checkpoint holds the length of the log, and :meth:`cut` takes it back there.

    Args:
        path: file of JSON lines.
        tensorboard: folder for TensorBoard, with a folder for each stage in it.
    """

    def __init__(self, path: Path, tensorboard: Path) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("ab")
        # An extra: nothing but the curves of TensorBoard depends on it.
        self._tensorboard = tensorboard if find_spec("tensorboard") is not None else None
        self._writers: dict[str, Any] = {}
        self._purge: dict[str, int] | None = None

    @property
    def draws_curves(self) -> bool:
        """Whether TensorBoard is installed."""
        return self._tensorboard is not None

    def position(self) -> int:
        """Write everything to disk and return the length of the log in bytes."""
        with writing(self._path):
            self._file.flush()
            for writer in self._writers.values():
                writer.flush()
        return self._file.tell()

    def cut(self, position: int, stage: str = "", step: int = 0) -> None:
        """Remove what was written after a checkpoint.

        Args:
            position: length of the log at the checkpoint, in bytes.
            stage: name of the stage at the checkpoint; later stages lose all their curves.
            step: number of steps of this stage at the checkpoint; its curves lose the steps after it.
        """
        with writing(self._path):
            self._file.truncate(position)
            self._file.seek(position)
        self._purge = {stage: step + 1}

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
        if self._tensorboard is not None:
            with writing(self._tensorboard):
                writer = self._writer(self._tensorboard / stage)
                for name, value in figures.items():
                    writer.add_scalar(name, value, step)

    def _writer(self, folder: Path) -> Any:
        # A folder for each stage: TensorBoard forgets from a step on whatever the folder holds, and steps
        # begin anew with every stage.
        stage = folder.name
        if stage not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            purge = None if self._purge is None else self._purge.get(stage, 0)
            if purge == 0:
                shutil.rmtree(folder, ignore_errors=True)
            self._writers[stage] = SummaryWriter(str(folder), purge_step=purge)
        return self._writers[stage]

    def close(self) -> None:
        """Write everything to disk and close the files."""
        with writing(self._path):
            self._file.close()
            for writer in self._writers.values():
                writer.close()
