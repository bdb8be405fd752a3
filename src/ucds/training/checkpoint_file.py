"""Writes and reads the checkpoint of a run, and keeps the one before it for the case of damage.

A checkpoint is a sealed file of what ``torch.save`` wrote. It is read without running any code that it may
hold.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from ucds.errors import DamagedFileError, UcdsWarning, one_line
from ucds.files import read_sealed, write_sealed
from ucds.training.checkpoint import Checkpoint, StageProgress, StageResult
from ucds.training.health import Evaluation

CHECKPOINT_FILE = "checkpoint.pt"
EARLIER_FILE = "checkpoint-before.pt"
_SEAL = "ucds-checkpoint/1"

_TYPES: list[Any] = [Checkpoint, StageProgress, StageResult, Evaluation]
_FORM = TypeAdapter(Checkpoint)


def has_checkpoint(run: Path) -> bool:
    """Return whether a run folder holds a checkpoint, damaged or not."""
    return any((run / name).exists() for name in (CHECKPOINT_FILE, EARLIER_FILE))


def write_checkpoint(run: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a run folder; the one before it stays beside it.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    content = io.BytesIO()
    torch.save(checkpoint, content)  # in memory: it turns a full disk into a RuntimeError
    write_sealed(run / CHECKPOINT_FILE, _SEAL, content.getbuffer(), keep=run / EARLIER_FILE)


def read_checkpoint(run: Path) -> Checkpoint | None:
    """Read the latest checkpoint that is not damaged, onto the CPU; ``None`` when there is none at all.

    Raises:
        DamagedFileError: every checkpoint is damaged.

    Warns:
        UcdsWarning: the latest checkpoint is damaged, and the one before it is used.
    """
    problems = []
    for path in (run / CHECKPOINT_FILE, run / EARLIER_FILE):
        try:
            checkpoint = _read(path)
        except FileNotFoundError:
            continue
        except DamagedFileError as error:
            problems.append(error)
            continue
        if problems:
            warnings.warn(f"{problems[0]}: the one before it is used", UcdsWarning, stacklevel=2)
        return checkpoint
    if problems:
        raise DamagedFileError(f"{problems[0]}: delete it to start over")
    return None


def drop_checkpoints(run: Path) -> None:
    """Remove all checkpoints of a run folder."""
    for name in (CHECKPOINT_FILE, EARLIER_FILE):
        (run / name).unlink(missing_ok=True)


def _read(path: Path) -> Checkpoint:
    data = read_sealed(path, _SEAL)
    try:
        with torch.serialization.safe_globals(_TYPES):
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        return _FORM.validate_python(found)
    except ValidationError:
        reason = "it holds something else"
    except Exception as error:  # whatever reading a damaged pickle may raise
        reason = one_line(error)
    raise DamagedFileError(f"{path} is damaged ({reason})") from None
