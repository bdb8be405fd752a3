"""The state of an unfinished run, as its checkpoint file holds it (see ``checkpoint_file``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict
from torch import Tensor

from ucds.training.health import CHECKED, Evaluation

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class StageResult:
    """Result of a finished stage, apart from the model.

    Attributes:
        name: name of the stage.
        evaluations: evaluations in order, ten a stage by default.
        selected: position of the evaluation whose model was kept.
        proportions: ``(D, K)`` sizes of the clusters in each domain, at that evaluation.
        seconds: time spent in the stage, over all resumed parts.
        assignments: ``(n, K)`` share of each cluster in each sample, rows sum to 1, if the stage clusters
            features without training; ``None`` for other stages.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    name: str
    evaluations: list[Evaluation]
    selected: int
    proportions: Tensor
    seconds: float
    assignments: Tensor | None = None


@dataclass
class StageProgress:
    """State of a stage in progress.

    Attributes:
        step: number of training steps done.
        seconds: time spent so far.
        evaluations: evaluations so far, in order.
        kept_model: weights at the evaluation that would be selected now; empty before the first one.
        kept_proportions: ``(D, K)`` proportions at that evaluation.
        optimiser: state of the optimiser.
        state: tensors that the stage's loop carries from step to step, by name.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    step: int = 0
    seconds: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    kept_model: Tensors = field(default_factory=dict)
    kept_proportions: Tensor | None = None
    optimiser: dict[str, Any] = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """Complete state of a run that is to be resumed.

    Attributes:
        stage: name of the stage in progress, or of the stage that finished last.
        model: weights of the model.
        progress: state of that stage; ``None`` once it has finished.
        results: results of the finished stages, in order.
        log: length of the run's log in bytes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    stage: str
    model: Tensors
    progress: StageProgress | None
    results: list[StageResult]
    log: int
