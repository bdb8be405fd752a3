"""One training run of several stages: its results so far, its checkpoint and its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from ucds.config import Settings
from ucds.data.samples import Samples
from ucds.files import write_atomically
from ucds.training.checkpoint import Checkpoint, StageProgress, StageResult
from ucds.training.log import RunLog
from ucds.training.runtime import Runtime

SettingsT = TypeVar("SettingsT", bound=Settings, covariant=True)


class Session(Generic[SettingsT]):
    """Results, checkpoint and log of a run, so that an unfinished run can be resumed.

    A checkpoint holds the results of the finished stages, the weights, and the state of the stage in
    progress. A resumed run goes through the same stages: finished ones yield no steps, the others continue.

    Args:
        runtime: device and folder of the run; the folder, if any, holds the checkpoint and the log.
        settings: settings of the method.

    Raises:
        DamagedFileError: the checkpoint in the folder cannot be read.
    """

    def __init__(self, runtime: Runtime, settings: SettingsT) -> None:
        self.runtime = runtime
        self.settings = settings
        self._log: RunLog | None = None
        folder = runtime.folder
        self._checkpoint = checkpoint = None if folder is None else folder.load_checkpoint()
        results = [] if checkpoint is None else checkpoint.results
        self._results: dict[str, StageResult] = {result.name: result for result in results}
        if folder is None or runtime.rank != 0:
            return
        self._log = RunLog(folder.log_path)
        self._log.cut(0 if checkpoint is None else checkpoint.log)

    @property
    def results(self) -> list[StageResult]:
        """Results of the finished stages, in order."""
        return list(self._results.values())

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Checkpoint that the run was resumed from; ``None`` from the end of the next stage on."""
        return self._checkpoint

    def result_of(self, stage: str) -> StageResult | None:
        """Return the result of a stage; ``None`` when it is not finished."""
        return self._results.get(stage)

    def save(self, stage: str, model: dict[str, Tensor], progress: StageProgress | None) -> None:
        """Write a checkpoint, if the run has a folder.

        Args:
            stage: name of the stage.
            model: weights of the model.
            progress: state of the stage; ``None`` when it has just finished.
        """
        folder = self.runtime.folder
        if folder is None or self._log is None:
            return
        folder.save_checkpoint(Checkpoint(stage, model, progress, self.results, self._log.position()))

    def conclude(self, result: StageResult, model: dict[str, Tensor]) -> None:
        """Record the result of a stage, and write a checkpoint with the model at its end."""
        self._results[result.name] = result
        self._checkpoint = None
        self.save(result.name, model, None)

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Add figures to the log, see :meth:`RunLog.write`."""
        if self._log is not None:
            self._log.write(stage, step, kind, figures)

    def close(self) -> None:
        """Write the log to disk and close it."""
        if self._log is not None:
            self._log.close()

    def save_evaluations(self, samples: Samples) -> None:
        """Write the predictions of every evaluation into the run folder, for :func:`ucds.evaluate`.

        Args:
            samples: samples that were evaluated; later they are found by id and content.
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
