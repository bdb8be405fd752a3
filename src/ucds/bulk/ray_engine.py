"""Runs tasks on workers of Ray; the only module that imports Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from secrets import token_hex
from typing import Any, TypeVar

from ucds.errors import InputError, UserError, one_line
from ucds.extras import require_extra
from ucds.math.arrays import processors

Answer = TypeVar("Answer")


class _Worker:
    """One worker: keeps a task with its network, and runs it on one item after another."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def run(self, item: tuple[Any, ...]) -> Any:
        """Return the task's answer, or a user's error, which Ray would retry if it were raised."""
        try:
            return self._task(*item)
        except UserError as error:
            return error


def run_on_ray(
    task: Callable[..., Answer], items: Sequence[tuple[Any, ...]], workers: int | None, *, on_gpu: bool
) -> Iterator[Answer]:
    """Run a task on every item, and yield each result as soon as it is ready.

    A worker that dies is started again and repeats its item, as often as necessary.

    The task can be pickled, and is called with the arguments of each item. There is one worker a processor or
    GPU if their number is ``None``.
    """
    ray = _connect(workers or 0)
    everywhere = int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))
    workers = max(1, min(workers or everywhere, len(items)))
    kind = ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1, num_gpus=int(on_gpu))(_Worker)
    shared = ray.put(task)
    pool = ray.util.ActorPool([kind.remote(shared) for _ in range(workers)])
    try:
        for answer in pool.map_unordered(lambda worker, item: worker.run.remote(item), items):
            if isinstance(answer, UserError):
                raise answer
            yield answer
    except ray.exceptions.RayError as error:
        reason = f"Ray gave up the work ({one_line(error)}); finished parts are kept: run again to go on"
        raise UserError(reason) from None


def _connect(workers: int) -> Any:
    """Connect to a cluster, or start Ray on this machine, once for all work of this process."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters of its remarks becomes an error
    require_extra("ray", '`engine="ray"`')
    import ray
    import ray.util

    if not ray.is_initialized():
        cpus, address = max(workers, processors()), os.environ.get("RAY_ADDRESS")
        how: dict[str, Any] = {"address": address}
        if address is None:
            how = {"num_cpus": cpus, "include_dashboard": False}
            os.environ.setdefault("RAY_AUTH_TOKEN", token_hex(32))  # else Ray leaves one in the home folder
        try:
            ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # a slow start of Ray is one without a class of its own
            where = "on this machine" if address is None else f"at {address} (RAY_ADDRESS)"
            raise InputError(f"Ray cannot be used {where}: {one_line(error)}") from None
    return ray
