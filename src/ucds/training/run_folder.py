"""The folder a training run leaves behind, safe against crashes, second starts and mix-ups.

| file | holds |
| --- | --- |
| `run.json` | what was run: role, settings, data, versions |
| `log.jsonl` | one line a logged step or evaluation |
| `tensorboard/<stage>/` | the same for TensorBoard |
| `checkpoint.pt` | an unfinished run's state |
| `evaluations.npz` | predictions at every evaluation, for the oracle that `ucds evaluate` prints apart |
| `model.safetensors` | the result, written last |
"""

from __future__ import annotations

import fcntl
import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch

from ucds.errors import InputError
from ucds.files import write_atomically, write_text_atomically
from ucds.training.checkpoint import Checkpoint

_VOLATILE = frozenset({"versions"})
"""Entries of run.json that may differ between the first start and a resumed one."""


_UNREADABLE = (
    *(OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError),
    *(KeyError, TypeError, AttributeError),
)
"""What a damaged checkpoint raises: while it is read, and if its contents have another form."""


class RunFolder:
    """One run on disk, held by one process (or one group of processes) at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._fresh = False

    @property
    def log_path(self) -> Path:
        """The log, one JSON object a line."""
        return self.path / "log.jsonl"

    def open(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Take possession of the folder for a run described by ``identity``.

        Raises:
            UserError: it holds another run, or this one and ``resume`` is not set, or another process
                is at work in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot create the run folder {self.path}: {error.strerror}") from None
        occupied = self.refuse_other_use(resume=resume)
        self._take_lock()
        if occupied:
            self.refuse_other_run(identity)
        else:
            write_text_atomically(self.path / "run.json", json.dumps(identity, indent=2) + "\n")
            self._fresh = True

    def refuse_other_use(self, *, resume: bool) -> bool:
        """Make sure, before any work, that the folder is free, or holds a run that may be resumed.

        Returns:
            Whether it holds a run.

        Raises:
            UserError: it holds anything else, or ``resume`` is not set.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file: choose another --out")
        # Hidden files are the lock, and what a crash left of a description never finished.
        occupied = self.path.exists() and any(not e.name.startswith(".") for e in self.path.iterdir())
        if occupied and not resume:
            raise InputError(f"{self.path} is not empty: choose another --out, or --resume the run in it")
        if occupied and not (self.path / "run.json").exists():
            raise InputError(f"{self.path} holds no run to resume: choose another --out")
        return occupied

    def refuse_other_run(self, identity: dict[str, Any]) -> None:
        """Make sure that the run in the folder is the one described.

        Raises:
            UserError: it differs; the message names the first difference.
        """
        _refuse_differences(_read_description(self.path / "run.json"), identity, self.path)

    def abandon(self) -> None:
        """Leave nothing behind of a run that was refused before its first checkpoint."""
        if not self._fresh or (self.path / "checkpoint.pt").exists():
            return
        for name in ("run.json", "log.jsonl", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()

    def _take_lock(self) -> None:
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is training in {self.path}") from None

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint."""
        write_atomically(self.path / "checkpoint.pt", lambda file: torch.save(checkpoint.to_dict(), file))

    def load_checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, on the CPU, or ``None`` when the run has not written one yet.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            return Checkpoint.from_dict(torch.load(path, map_location="cpu", weights_only=True))
        except _UNREADABLE as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"{path} is damaged ({reason}): delete it to start over") from None

    def drop_checkpoint(self) -> None:
        """Forget the checkpoint once the result is safe."""
        (self.path / "checkpoint.pt").unlink(missing_ok=True)


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        description = None
    if not isinstance(description, dict):
        raise InputError(f"{path} is damaged: choose another --out")
    return description


def _refuse_differences(stored: dict[str, Any], asked: dict[str, Any], path: Path) -> None:
    asked = json.loads(json.dumps(asked))
    differing = sorted(
        key
        for key in stored.keys() | asked.keys()
        if key not in _VOLATILE and stored.get(key) != asked.get(key)
    )
    if not differing:
        return
    key = differing[0]
    before, now = stored.get(key), asked.get(key)
    if isinstance(before, dict) and isinstance(now, dict):
        name = next(n for n in sorted(before.keys() | now.keys()) if before.get(n) != now.get(n))
        key, before, now = f"{key}.{name}", before.get(name), now.get(name)
    raise InputError(f"{path} holds another run: its {key} is {before!r}, not {now!r}; choose another --out")
