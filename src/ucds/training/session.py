"""One training run made of stages: its results so far, its checkpoint and its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import Module

from ucds.config import Config
from ucds.data.samples import Samples
from ucds.files import write_atomically
from ucds.training.health import Evaluation
from ucds.training.log import RunLog
from ucds.training.runtime import Runtime


@dataclass(frozen=True)
class StageResult:
    """What a stage leaves behind besides the model.

    Attributes:
        name: of the stage.
        evaluations: in order, ten a stage by default.
        selected: position of the one whose model was kept.
        state: the loop's tensors that belong to the kept model.
        seconds: time spent in the stage, over all resumed parts.
    """

    name: str
    evaluations: list[Evaluation]
    selected: int
    state: dict[str, Tensor]
    seconds: float


class Session:
    """Runs stages one after the other and lets an unfinished run be taken up again.

    A checkpoint holds the results of the finished stages, the weights, and what the stage in progress
    needs. A resumed run walks through the same stages: finished ones yield no steps, the others go on.

    Args:
        runtime: where it runs; its folder, if any, holds the checkpoint and log.
        config: the settings of the method.
    """

    def __init__(self, runtime: Runtime, config: Config) -> None:
        self.runtime = runtime
        self.config = config
        self._results: dict[str, StageResult] = {}
        self._checkpoint: dict[str, Any] | None = None
        self._log: RunLog | None = None
        if runtime.folder is None:
            return
        self._checkpoint = runtime.folder.load_checkpoint()
        if runtime.rank == 0:
            self._log = RunLog(runtime.folder.log_path, runtime.folder.path / "tensorboard")
        if self._checkpoint is None:
            if self._log is not None:
                self._log.cut(0)
            return
        for stored in self._checkpoint["results"]:
            evaluations = [Evaluation(**evaluation) for evaluation in stored.pop("evaluations")]
            self._results[stored["name"]] = StageResult(evaluations=evaluations, **stored)
        if self._log is not None:
            step = self._checkpoint["progress"].get("step", 0)
            self._log.cut(self._checkpoint["log"], self._checkpoint["stage"], step)

    @property
    def results(self) -> list[StageResult]:
        """Results of the finished stages, in order."""
        return list(self._results.values())

    def result_of(self, stage: str) -> StageResult | None:
        """Result of a stage, or ``None`` when it is not finished."""
        return self._results.get(stage)

    def take_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint that the run was resumed from, with entries ``stage``, ``model``, ``progress``."""
        return self._checkpoint

    def restore(self, model: Module) -> None:
        """Give a model the weights of the checkpoint, if the run was resumed from one."""
        if self._checkpoint is not None:
            model.load_state_dict(self._checkpoint["model"])

    def save(self, stage: str, model: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Write a checkpoint of a stage in progress (or, with no ``progress``, just finished)."""
        folder = self.runtime.folder
        if folder is None or self.runtime.rank != 0 or self._log is None:
            return
        folder.save_checkpoint(
            {
                "stage": stage,
                "model": model,
                "progress": progress,
                "results": [asdict(result) for result in self.results],
                "log": self._log.position(),
            }
        )

    def conclude(self, result: StageResult, model: dict[str, Tensor]) -> None:
        """Take in the result of a stage, and save it with the model that it ended with."""
        self._results[result.name] = result
        self._checkpoint = None
        self.save(result.name, model, {})

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
            samples: that were evaluated; they are known again by id and content.
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
