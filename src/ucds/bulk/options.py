"""The way in which bulk work is done."""

from __future__ import annotations

from dataclasses import dataclass

from ucds.choices import Engine, require_choice
from ucds.errors import InputError


@dataclass(frozen=True)
class BulkOptions:
    """Way to do bulk work.

    Attributes:
        engine: ``"plain"`` for a loop in this process; ``"ray"`` for workers of Ray, on the cluster that the
            environment variable ``RAY_ADDRESS`` names, or on this machine.
        workers: number of workers of Ray; one a processor, or a GPU where the accelerator is ``"cuda"``, if
            ``None``.
        shard_size: number of images of a part, the unit that is computed and written at a time.

    Raises:
        InputError: there is no such engine, workers are given to the loop, or a number is below 1.
    """

    engine: Engine = "plain"
    workers: int | None = None
    shard_size: int = 1024

    def __post_init__(self) -> None:
        """Refuse options that nothing would use, and an engine that does not exist."""
        require_choice("engine", self.engine, Engine)
        if self.engine == "plain" and self.workers is not None:
            raise InputError("--workers is for --engine ray")
        if self.shard_size < 1 or (self.workers is not None and self.workers < 1):
            raise InputError("--shard-size and --workers are at least 1")
