"""One training run of several stages: its results so far, its checkpoint and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Generic, TypeVar

from torch import Tensor

from ucds.config import Settings
from ucds.files import writing
from ucds.gradients.checkpoint import (
    Checkpoint,
    StageProgress,
    StageResult,
    read_checkpoint,
    write_checkpoint,
)
from ucds.gradients.runtime import Runtime
from ucds.networks.model import ClusteringModel
from ucds.received import open_received
from ucds.training.run_folder import LOG_FILE

SettingsT = TypeVar("SettingsT", bound=Settings, covariant=True)


class Session(Generic[SettingsT]):
    """Results, checkpoint and log of a run, so that an unfinished run can be resumed.

    A checkpoint holds the results of the finished stages, the weights, and the state of the stage in
    progress. A resumed run goes through the same stages: finished ones yield no steps, the others continue.
    The log has one JSON object a line. A run that was killed wrote lines after its last checkpoint, and the
    resumed one writes them again: so the checkpoint holds the length of the log, which is cut back to it.

    The folder of the runtime, if there is one, holds the checkpoint and the log.

    Attributes:
        checkpoint: checkpoint that the run was resumed from; ``None`` from the end of the next stage on.
        results: results of the finished stages, in order.

    Raises:
        DamagedFileError: the checkpoint in the folder cannot be read.
    """

    def __init__(self, runtime: Runtime, settings: SettingsT) -> None:
        self.runtime = runtime
        self.settings = settings
        self._log: IO[bytes] | None = None
        folder = runtime.folder
        self.checkpoint = None if folder is None else read_checkpoint(folder.path)
        self.results: list[StageResult] = [] if self.checkpoint is None else self.checkpoint.results
        if folder is None or runtime.rank != 0:
            return
        kept = 0 if self.checkpoint is None else self.checkpoint.log
        with writing(folder.path / LOG_FILE):
            self._log = open_received(folder.path / LOG_FILE, "a+b")
            self._log.truncate(max(0, min(kept, self._log.tell())))  # at most what it holds
            self._log.seek(0, 2)

    def result_of(self, stage: str) -> StageResult | None:
        """Return the result of a stage; ``None`` when it is not finished."""
        return next((result for result in self.results if result.name == stage), None)

    def restore(self, model: ClusteringModel) -> None:
        """Give a model the weights of the checkpoint that the run was resumed from, if there is one."""
        if self.checkpoint is not None:
            model.load_state_dict(self.checkpoint.model)

    def save(self, stage: str, model: dict[str, Tensor], progress: StageProgress | None) -> None:
        """Write a checkpoint of a stage, if the run has a folder; at its end ``progress`` is ``None``."""
        folder = self.runtime.folder
        if folder is None or self._log is None:
            return
        with writing(folder.path / LOG_FILE):
            self._log.flush()
        write_checkpoint(folder.path, Checkpoint(stage, model, progress, self.results, self._log.tell()))

    def conclude(self, result: StageResult, model: dict[str, Tensor]) -> None:
        """Record the result of a stage, and write a checkpoint with the model at its end."""
        self.results.append(result)
        self.checkpoint = None
        self.save(result.name, model, None)

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Add a line to the log: figures of the kind "losses" or "evaluation", after so many steps."""
        if self._log is None:
            return
        rounded = {name: round(value, 6) for name, value in figures.items()}
        line = json.dumps({"stage": stage, "step": step, "kind": kind, **rounded})
        with writing(Path(self._log.name)):
            self._log.write(line.encode() + b"\n")

    def close(self) -> None:
        """Write the log to disk and close it."""
        if self._log is not None:
            with writing(Path(self._log.name)):
                self._log.close()
