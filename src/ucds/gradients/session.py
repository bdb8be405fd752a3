"""One training run of several stages: its results so far, its checkpoint and its log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from torch import Tensor

from ucds.config import Settings
from ucds.errors import InputError, Interrupted, UserError, brief
from ucds.files import writing
from ucds.gradients.checkpoint import Checkpoint, StageProgress, read_checkpoint, write_checkpoint
from ucds.gradients.runtime import Runtime
from ucds.networks.model import ClusteringModel
from ucds.received import open_received
from ucds.training.options import Compute
from ucds.training.results import StageResult
from ucds.training.run_folder import LOG_FILE, RunFolder
from ucds.training.work import Work

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound=Settings, covariant=True)


def require_devices(compute: Compute, devices: int) -> None:
    """Make sure, before any work, that a session can be made; see :class:`Runtime` for the errors."""
    Runtime(compute, devices)
    _seconds_between_checkpoints()


def _seconds_between_checkpoints() -> float:
    """Read the longest time between two checkpoints from the environment; a minute by default."""
    text = os.environ.get("UCDS_CHECKPOINT_SECONDS") or "60"
    try:
        return float(text)
    except ValueError:
        raise InputError(f"UCDS_CHECKPOINT_SECONDS is a number of seconds, not {brief(text)}") from None


class Session(Work[SettingsT]):
    """A run of one process or several that learns by gradients, and that can be resumed at any step.

    A checkpoint holds the results of the finished stages, the weights, and the state of the stage in
    progress. A resumed run goes through the same stages: finished ones yield no steps, the others continue.
    The log has one JSON object a line. A killed run may have written lines after its last checkpoint, which
    the resumed run writes again. So the checkpoint holds the length of the log, and the log is cut to it.
    """

    def __init__(
        self,
        settings: SettingsT,
        compute: Compute | None = None,
        *,
        seed: int = 0,
        folder: RunFolder | None = None,
        devices: int = 1,
    ) -> None:
        super().__init__(settings, compute, seed=seed, folder=folder)
        self.runtime = Runtime(self.compute, devices)
        self.checkpoint_seconds = _seconds_between_checkpoints()
        self.checkpoint: Checkpoint | None = None  # which the run was resumed from, until a stage has ended
        self._log: IO[bytes] | None = None

    def open(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Start the processes, take possession of the folder, and take up what an earlier start left."""
        self.runtime.launch()
        folder = self.folder
        if folder is None:
            return
        self.once(lambda: folder.open(identity, resume=resume))
        self.checkpoint = read_checkpoint(folder.path)
        if self.checkpoint is not None:
            self.results = self.checkpoint.results
        if not self.first:
            return
        path, kept = folder.path / LOG_FILE, 0 if self.checkpoint is None else self.checkpoint.log
        with writing(path):
            self._log = open_received(path, "a+b")
            self._log.truncate(max(0, min(kept, self._log.tell())))  # at most what it holds
            self._log.seek(0, 2)

    @property
    def first(self) -> bool:
        """Whether this process is the only one, or the first: the one that writes files."""
        return self.runtime.rank == 0

    def once(self, work: Callable[[], T]) -> T:
        """Do some work in the first process only, and return its result in all processes.

        An error of the user is raised in all, so that none waits for one that has stopped.
        """
        result: T | UserError | Interrupted | None = None
        if self.first:
            try:
                result = work()
            except (UserError, Interrupted) as error:
                result = error
        result = self.runtime.broadcast(result)
        if isinstance(result, UserError | Interrupted):
            raise result
        return cast("T", result)

    def asked_to_stop(self) -> bool:
        """Return in all processes whether any of them was asked to stop."""
        return self.runtime.any_of(self.stop_requested)

    def has_lost_others(self, error: Exception) -> bool:
        """Return whether an error says that another process of the run has ended."""
        return self.runtime.has_lost_others(error)

    def result_of(self, stage: str) -> StageResult | None:
        """Return the result of a stage; ``None`` when it is not finished."""
        return next((result for result in self.results if result.name == stage), None)

    def restore(self, model: ClusteringModel) -> None:
        """Give a model the weights of the checkpoint that the run was resumed from, if there is one."""
        if self.checkpoint is not None:
            model.load_state_dict(self.checkpoint.model)

    def save(self, stage: str, model: dict[str, Tensor], progress: StageProgress | None) -> None:
        """Write a checkpoint of a stage, if the run has a folder; at its end ``progress`` is ``None``."""
        if self.folder is None or self._log is None:
            return
        with writing(self.folder.path / LOG_FILE):
            self._log.flush()
        checkpoint = Checkpoint(stage, model, progress, self.results, self._log.tell())
        write_checkpoint(self.folder.path, checkpoint)

    def conclude(self, result: StageResult, model: dict[str, Tensor]) -> None:
        """Record the result of a stage, and write a checkpoint with the final model."""
        self.results.append(result)
        self.checkpoint = None
        self.save(result.name, model, None)

    def write(self, stage: str, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Add a line to the log: figures of the kind "losses" or "evaluation", after a step."""
        if self._log is None:
            return
        rounded = {name: round(value, 6) for name, value in figures.items()}
        line = json.dumps({"stage": stage, "step": step, "kind": kind, **rounded})
        with writing(Path(self._log.name)):
            self._log.write(line.encode() + b"\n")

    def close(self) -> None:
        """Write the log to disk, and let other processes use the folder."""
        if self._log is not None:
            with writing(Path(self._log.name)):
                self._log.close()
        if self.folder is not None:
            self.folder.close()
