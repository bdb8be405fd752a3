"""Runs tasks one after the other in this process, or side by side in the workers of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ucds.bulk.shards import Rows
from ucds.choices import Accelerator, Engine, require_choice
from ucds.errors import InputError

Task = Callable[[Rows], Rows]
"""Function that can be pickled, from one row that says what to do to one row that says what became of it."""


@dataclass(frozen=True)
class BulkOptions:
    """Way to do bulk work.

    Attributes:
        engine: ``"plain"`` for a loop in this process, ``"ray"`` for workers of Ray.
        address: address of a running Ray cluster, such as ``"auto"`` or ``"10.0.0.1:6379"``; ``None`` starts
            Ray on this machine.
        workers: number of workers; with Ray one a processor, or a GPU where the accelerator is ``"cuda"``, if
            ``None``.
        shard_size: number of samples of a shard, the unit that is done and written at a time.
        accelerator: device to compute on.

    Raises:
        InputError: there is no such engine, an option of Ray is given to the loop, or a number is below 1.
    """

    engine: Engine = "plain"
    address: str | None = None
    workers: int | None = None
    shard_size: int = 4096
    accelerator: Accelerator = "auto"

    def __post_init__(self) -> None:
        """Refuse options that nothing would use, and an engine that does not exist."""
        require_choice("engine", self.engine, Engine)
        if self.engine == "plain" and (self.address is not None or self.workers is not None):
            raise InputError("--address and --workers are for --engine ray")
        if self.shard_size < 1 or (self.workers is not None and self.workers < 1):
            raise InputError("--shard-size and --workers are at least 1")

    @property
    def readers(self) -> int | None:
        """Number of threads that read images in each worker; ``None`` for one a processor."""
        return 1 if self.engine == "ray" else None


def run_tasks(task: Task, items: Iterable[Rows], options: BulkOptions) -> Iterator[Rows]:
    """Run a task on every item, and yield each result as soon as it is there.

    Args:
        task: task to run.
        items: rows of one entry a column; the loop takes them one by one.
        options: engine, and how it works.

    Raises:
        InputError: Ray is asked for and not installed, or its cluster cannot be reached.
    """
    if options.engine == "ray":
        from ucds.bulk.ray_engine import run_on_ray

        yield from run_on_ray(task, items, options)
    else:
        yield from map(task, items)
