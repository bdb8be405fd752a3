"""The state of an unfinished run, as its checkpoint file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from ucds.training.health import Evaluation

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class StageResult:
    """What a finished stage leaves behind besides the model.

    Attributes:
        name: name of the stage.
        evaluations: evaluations in order, ten a stage by default.
        selected: position of the evaluation whose model was kept.
        proportions: ``(D, K)`` sizes of the clusters in each domain, at that evaluation.
        seconds: time spent in the stage, over all resumed parts.
        assignments: ``(n, K)`` shares of each sample's clusters, rows sum to 1, from a stage that clusters
            features without training; ``None`` from the others.
    """

    name: str
    evaluations: list[Evaluation]
    selected: int
    proportions: Tensor
    seconds: float
    assignments: Tensor | None = None


@dataclass
class StageProgress:
    """Where a stage in progress stands.

    Attributes:
        step: training steps done.
        seconds: time spent so far.
        evaluations: evaluations so far.
        kept_model: weights at the evaluation that would be selected now; empty before the first one.
        kept_proportions: ``(D, K)`` proportions at that evaluation.
        optimiser: state of the optimiser.
        state: tensors that the stage's loop carries from step to step, by name.
    """

    step: int = 0
    seconds: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    kept_model: Tensors = field(default_factory=dict)
    kept_proportions: Tensor | None = None
    optimiser: dict[str, Any] = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on.

    Attributes:
        stage: name of the stage in progress, or of the one that finished last.
        model: weights.
        progress: where that stage stands; ``None`` once it has finished.
        results: results of the finished stages, in order.
        log: length of the run's log, bytes.
    """

    stage: str
    model: Tensors
    progress: StageProgress | None
    results: list[StageResult]
    log: int

    def to_dict(self) -> dict[str, Any]:
        """Return nested dictionaries and lists of tensors and numbers, which share the tensors."""
        values: dict[str, Any] = _plain(self)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Checkpoint:
        """Read what :meth:`to_dict` returned."""
        progress = values["progress"]
        return cls(
            stage=values["stage"],
            model=values["model"],
            progress=None if progress is None else StageProgress(**_with_evaluations(progress)),
            results=[StageResult(**_with_evaluations(result)) for result in values["results"]],
            log=values["log"],
        )


def _plain(value: Any) -> Any:
    # dataclasses.asdict would copy every tensor.
    if isinstance(value, (Checkpoint, StageProgress, StageResult, Evaluation)):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _with_evaluations(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "evaluations": [Evaluation(**evaluation) for evaluation in values["evaluations"]]}
