"""The state of an unfinished run, and the file that holds it.

A checkpoint is a sealed file with the output of ``torch.save``. It is read without running any code in it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from torch import Tensor

from ucds.errors import DamagedFileError, one_line
from ucds.files import read_sealed, write_sealed
from ucds.networks.weight_files import load_pickle
from ucds.training.results import Evaluation, StageResult
from ucds.training.run_folder import CHECKPOINT_FILE

Tensors = dict[str, Tensor]


@dataclass
class StageProgress:
    """State of a stage in progress."""

    step: int = 0  # number of training steps done
    seconds: float = 0.0
    evaluations: list[Evaluation] = field(default_factory=list)
    kept_model: Tensors = field(default_factory=dict)  # weights at the evaluation that would be selected now
    kept_proportions: Tensor | None = None  # (D, K) at that evaluation
    optimiser: dict[str, Any] = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)  # what the stage's loop carries from step to step


# All that it holds is checked in the same way when it is read.
@with_config(
    ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True, revalidate_instances="always")
)
@dataclass(frozen=True)
class Checkpoint:
    """Complete state of a run that is to be resumed."""

    stage: str  # name of the stage in progress, or of the one that finished last
    model: Tensors  # weights
    progress: StageProgress | None  # of that stage; None once it has finished
    results: list[StageResult]  # of the finished stages, in order
    log: int  # length of the run's log in bytes


_SEAL = "ucds-checkpoint/1"
_TYPES: list[Any] = [Checkpoint, StageProgress, StageResult, Evaluation]
_TYPES += [np.ndarray, np.dtype, np.dtypes.Int64DType, np.dtypes.Float32DType, np.empty(0).__reduce__()[0]]
_FORM = TypeAdapter(Checkpoint)


def write_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a run folder."""
    content = io.BytesIO()
    torch.save(checkpoint, content)  # in memory: it turns a full disk into a RuntimeError
    write_sealed(run / CHECKPOINT_FILE, _SEAL, content.getbuffer())


def read_checkpoint(run: Path) -> Checkpoint | None:
    """Read a checkpoint onto the CPU, unless it is damaged; ``None`` when there is none."""
    path = run / CHECKPOINT_FILE
    try:
        data = read_sealed(path, _SEAL)
        with torch.serialization.safe_globals(_TYPES):
            found = load_pickle(io.BytesIO(data))
        return _FORM.validate_python(found)
    except FileNotFoundError:
        return None
    except DamagedFileError as error:
        problem = str(error)
    except ValidationError:
        problem = f"{path} is damaged (it holds something else)"
    except Exception as error:  # whatever reading a damaged pickle may raise
        problem = f"{path} is damaged ({one_line(error)})"
    raise DamagedFileError(f"{problem}: delete it to start over") from None
