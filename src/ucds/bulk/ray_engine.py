"""Runs tasks as a data set of Ray; the only module that imports Ray."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ucds.bulk.shards import Rows
from ucds.data.ahead import processors
from ucds.errors import InputError, UserError, one_line

if TYPE_CHECKING:
    from ucds.bulk.engines import BulkOptions, Task


class RayFailedError(UserError):
    """Ray gave the work up: its workers could not start, or the cluster went away."""


class _Worker:
    """One worker: keeps a task, with its network, and runs it on one item after the other."""

    def __init__(self, task: Any) -> None:
        import ray

        self._task: Task = ray.get(task)

    def __call__(self, batch: Rows) -> Rows:
        answer: Rows | UserError
        try:
            answer = self._task(batch)
        except UserError as error:  # it is raised where the command runs; to Ray it would be worth retrying
            answer = error
        return {"answer": np.array([pickle.dumps(answer)], dtype=object)}


def run_on_ray(task: Task, items: Iterable[Rows], options: BulkOptions) -> Iterator[Rows]:
    """Run a task on every item with Ray Data, and yield each result as soon as it is there.

    A worker that dies is started anew, and does its item again, as often as it takes.

    Args:
        task: task to run.
        items: rows of one entry a column.
        options: address of the cluster, and number of workers.

    Raises:
        InputError: Ray is not installed, or its cluster cannot be reached.
        RayFailedError: Ray gave the work up.
        UserError: the task raised it.
    """
    ray = _connect(options)
    rows = [{name: column[0] for name, column in item.items()} for item in items]
    gpus = {"num_gpus": 1} if options.accelerator == "cuda" else {}
    everywhere = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1))
    workers = max(1, min(options.workers or everywhere, len(rows)))
    answers = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        _Worker,
        fn_constructor_args=(ray.put(task),),
        batch_size=1,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
        **gpus,
    )
    try:
        for row in answers.iter_rows():
            answer = pickle.loads(row["answer"])
            if isinstance(answer, UserError):
                raise answer
            yield answer
    except ray.exceptions.RayError as error:
        reason = f"Ray gave the work up ({one_line(error)}); finished shards are kept: run again to go on"
        raise RayFailedError(reason) from None


def _connect(options: BulkOptions) -> Any:
    """Connect to a cluster, or start Ray on this machine, once for all work of this process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters of its remarks becomes an error
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("--engine ray needs a further package: pip install 'ucds[ray]'") from None
    if not ray.is_initialized():
        own: dict[str, Any] = {
            "num_cpus": max(options.workers or 0, processors()),
            "include_dashboard": False,
        }
        how = own if options.address is None else {"address": options.address}
        try:
            ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = "on this machine" if options.address is None else f"at {options.address}"
            raise InputError(f"Ray cannot be used {where}: {one_line(error)}") from None
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return ray
