"""Tests of the pool: results as they come, failures without loss, and no worker left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_work import devices_seen, forever, fragile, numbers

from ucds.errors import UserError
from ucds.experiments.pool import VISIBLE, run_jobs

PARENT = """
import sys
sys.path.insert(0, {folder!r})
from pool_work import forever
from ucds.experiments.pool import run_jobs
if __name__ == "__main__":
    for news in run_jobs(forever, [sys.argv[1]], 1):
        print(news.result, flush=True)
"""


def test_every_result_of_every_job_comes_in_its_order() -> None:
    news = list(run_jobs(numbers, [3, 0, 2], 2))
    assert all(item.failure is None for item in news)
    assert sorted((item.job, item.result) for item in news) == [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    assert [item.result for item in news if item.job == 3] == [0, 1, 2]


def test_a_failure_costs_neither_earlier_results_nor_other_jobs() -> None:
    news = list(run_jobs(fragile, ["user", "fault", "dies", "well"], 1))
    found = {job: [n.result for n in news if n.job == job] for job in ("user", "fault", "dies", "well")}
    assert all(results[0] == 1 for results in found.values())
    assert found["well"] == [1, 2]
    failures = {item.job: item.failure for item in news if item.failure is not None}
    assert failures["user"] == "no such thing"
    assert failures["fault"] == "ZeroDivisionError: division by zero"
    assert "killed by SIGKILL" in failures["dies"]
    assert failures.keys() == {"user", "fault", "dies"}


def test_every_worker_sees_a_device_of_its_own() -> None:
    news = list(run_jobs(devices_seen, [0, 1, 2], 1, ["5", "7"]))
    # One at a time: the first slot, and so the first device, is free again each time.
    assert [item.result for item in news] == ["5", "5", "5"]
    assert [item.result for item in run_jobs(devices_seen, [0], 1)] == [os.environ.get(VISIBLE)]


def test_side_by_side_devices_differ() -> None:
    found = {item.result for item in run_jobs(devices_seen, [1, 2], 2, ["5", "7"])}
    assert found == {"5", "7"}


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(path: Path) -> int:
    for _ in range(600):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("the worker never began")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_ends_with_its_parent_in_the_middle_of_its_work(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT.format(folder=str(Path(__file__).parent)))
    parent = subprocess.Popen([sys.executable, str(program), str(tmp_path / "process")])
    try:
        worker = wait_for(tmp_path / "process")
        assert alive(worker)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 5
        while alive(worker) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(worker)
    finally:
        parent.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_who_stops_listening_leaves_no_worker_behind(tmp_path: Path) -> None:
    news: Iterator[object] = run_jobs(forever, [str(tmp_path / "process")], 1)
    assert next(news) is not None
    worker = wait_for(tmp_path / "process")
    news.close()  # type: ignore[attr-defined]
    assert not alive(worker)


def test_errors_of_the_listener_reach_it() -> None:
    def listen() -> None:
        for _ in run_jobs(numbers, [2], 1):
            raise UserError("mine")

    with pytest.raises(UserError, match="mine"):
        listen()
