"""One training run made of stages: its results so far, its checkpoint and its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from ucds.config import ModelSettings
from ucds.data.samples import Samples
from ucds.files import write_atomically
from ucds.training.checkpoint import Checkpoint, StageProgress, StageResult
from ucds.training.log import RunLog
from ucds.training.runtime import Runtime

SettingsT = TypeVar("SettingsT", bound=ModelSettings, covariant=True)


class Session(Generic[SettingsT]):
    """Runs stages one after the other and lets an unfinished run be taken up again.

    A checkpoint holds the results of the finished stages, the weights, and what the stage in progress
    needs. A resumed run walks through the same stages: finished ones yield no steps, the others go on.

    Args:
        runtime: place of the run; its folder, if any, holds the checkpoint and the log.
        settings: settings of the method.
    """

    def __init__(self, runtime: Runtime, settings: SettingsT) -> None:
        self.runtime = runtime
        self._settings = settings
        self._results: dict[str, StageResult] = {}
        self._checkpoint: Checkpoint | None = None
        self._log: RunLog | None = None
        if runtime.folder is None:
            return
        self._checkpoint = checkpoint = runtime.folder.load_checkpoint()
        if runtime.rank == 0:
            self._log = RunLog(runtime.folder.log_path, runtime.folder.path / "tensorboard")
        if checkpoint is None:
            if self._log is not None:
                self._log.cut(0)
            return
        self._results = {result.name: result for result in checkpoint.results}
        if self._log is not None:
            step = 0 if checkpoint.progress is None else checkpoint.progress.step
            self._log.cut(checkpoint.log, checkpoint.stage, step)

    @property
    def settings(self) -> SettingsT:
        """Settings of the method."""
        return self._settings

    @property
    def results(self) -> list[StageResult]:
        """Results of the finished stages, in order."""
        return list(self._results.values())

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that the run was resumed from, until the next stage is finished."""
        return self._checkpoint

    def result_of(self, stage: str) -> StageResult | None:
        """Result of a stage, or ``None`` when it is not finished."""
        return self._results.get(stage)

    def save(self, stage: str, model: dict[str, Tensor], progress: StageProgress | None) -> None:
        """Write a checkpoint of a stage in progress (or, with no ``progress``, just finished)."""
        folder = self.runtime.folder
        if folder is None or self.runtime.rank != 0 or self._log is None:
            return
        folder.save_checkpoint(Checkpoint(stage, model, progress, self.results, self._log.position()))

    def conclude(self, result: StageResult, model: dict[str, Tensor]) -> None:
        """Take in the result of a stage, and save it with the model that it ended with."""
        self._results[result.name] = result
        self._checkpoint = None
        self.save(result.name, model, None)

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Add figures to the log."""
        if self._log is not None:
            self._log.write(stage, step, kind, figures)

    def close(self) -> None:
        """Put the log on disk."""
        if self._log is not None:
            self._log.close()

    def save_evaluations(self, samples: Samples) -> None:
        """Keep the predictions of every evaluation beside the model, for a later look by the oracle.

        Args:
            samples: samples that were evaluated; they are known again by id and content.
        """
        folder = self.runtime.folder
        if folder is None or self.runtime.rank != 0:
            return
        keys = np.frombuffer(b"".join(samples.keys), np.uint8).reshape(len(samples), -1)
        arrays: dict[str, Any] = {"ids": np.array(samples.ids), "keys": keys}
        for result in self.results:
            arrays[f"{result.name}/labels"] = np.stack([e.labels.numpy() for e in result.evaluations])
            arrays[f"{result.name}/information"] = np.array([e.information for e in result.evaluations])
        write_atomically(folder.path / "evaluations.npz", lambda file: np.savez_compressed(file, **arrays))
