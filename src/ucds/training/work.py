"""A run in progress: its task, its results so far, and the files from which it can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ucds.config import Settings
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, Interrupted
from ucds.files import write_atomically
from ucds.training.options import Compute
from ucds.training.results import StageResult
from ucds.training.run_folder import ARRAYS_FILE, RunFolder

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound=Settings, covariant=True)

_SECONDS, _STAGE = "seconds", "stage"  # names beside those of the arrays


class Work(Generic[SettingsT]):
    """A run of one process; methods that learn by gradients add processes and devices.

    By default, nothing is printed or kept on disk. The folder is for what is found and for the result.
    """

    def __init__(
        self,
        settings: SettingsT,
        compute: Compute | None = None,
        *,
        seed: int = 0,
        folder: RunFolder | None = None,
    ) -> None:
        self.settings, self.compute = settings, compute or Compute(cache=None)
        self.seed, self.folder = seed, folder
        self.results: list[StageResult] = []  # of the finished stages, in order
        self.stop_requested = False  # whether the run was asked to save its work and stop

    def open(self, identity: dict[str, Any], *, resume: bool) -> None:
        """Take possession of the run's folder, see :meth:`ucds.training.run_folder.RunFolder.open`."""
        if self.folder is not None:
            self.folder.open(identity, resume=resume)

    @property
    def first(self) -> bool:
        """Whether this process is the only one, or the first: the one that writes files."""
        return True

    def say(self, message: str) -> None:
        """Show the user a message, once for all processes."""
        if self.first:
            self.compute.reporter.say(message)

    def watch(self, work: str, done: int, total: int) -> None:
        """Show how far some work is, and end it if the run was asked to stop: a ``Watch`` of mathematics."""
        if self.stop_requested:
            raise Interrupted
        self.compute.reporter.show(work, done, total)

    def once(self, work: Callable[[], T]) -> T:
        """Do some work in the first process only, and return its result in all processes."""
        return work()

    def has_lost_others(self, error: Exception) -> bool:
        """Return whether an error says that another process of the run has ended."""
        return False

    def close(self) -> None:
        """Write what is still to be written."""

    def remember(
        self, stage: str, find: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> tuple[dict[str, NDArray[Any]], float]:
        """Compute arrays once in the life of a run, and write them before anything else is done.

        A resumed run takes them from its folder; all that follows takes seconds, and is done again. The order
        of their axes in memory is kept, because it decides how products are rounded. The arrays are returned
        with the seconds that it took to find them.
        """
        path = None if self.folder is None else self.folder.path / ARRAYS_FILE
        if path is not None and path.exists():
            kept = read_arrays(path)
            try:
                if str(kept.pop(_STAGE)) == stage:
                    return kept, float(kept.pop(_SECONDS))
            except (KeyError, TypeError, ValueError):
                raise DamagedFileError(f"{path} is damaged: delete it to start over") from None
        started = time.monotonic()
        found = {name: array.copy("K") for name, array in find().items()}
        seconds = time.monotonic() - started
        if path is not None:
            beside = {_STAGE: np.array(stage), _SECONDS: np.array(seconds)}
            write_atomically(path, lambda file: np.savez(file, **found, **beside))  # type: ignore[arg-type]
        return found, seconds
