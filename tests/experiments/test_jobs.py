"""Tests of jobs in processes of their own: failures, devices, and ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_kit import devices_seen, forever, fragile

from ucds.experiments.jobs import Failure, run_jobs

pytestmark = pytest.mark.torch

PARENT = """
import sys
sys.path.insert(0, {folder!r})
from job_kit import forever
from ucds.experiments.jobs import run_jobs
if __name__ == "__main__":
    list(run_jobs(forever, [sys.argv[1]], 1))
"""


def test_a_failure_costs_neither_what_was_written_nor_other_jobs(tmp_path: Path) -> None:
    names = ("user", "fault", "leaves", "dies", "well")
    found = list(run_jobs(fragile, [str(tmp_path / name) for name in names], 2))
    failures = {Path(each.job).name: each.reason for each in found if isinstance(each, Failure)}
    assert failures == {
        "user": "no such thing",
        "fault": "ZeroDivisionError: division by zero",
        "leaves": "its process ended with status 3",
        "dies": "its process was killed by SIGKILL (perhaps for lack of memory)",
    }
    assert sorted(each for each in found if not isinstance(each, Failure)) == sorted(names)
    states = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert states == dict.fromkeys(names, "begun") | {"well": "done"}


def test_processes_side_by_side_see_devices_of_their_own() -> None:
    long = "1.0"  # seconds in which another process starts
    assert sorted(run_jobs(devices_seen, [long, long], 2, ["5", "7"])) == ["5", "7"]
    assert list(run_jobs(devices_seen, ["0", "0"], 1, ["5", "7"])) == ["5", "5"]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(path: Path) -> int:
    for _ in range(2400):
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
    news = run_jobs(forever, [str(tmp_path / "process")], 1)
    worker = next(news)
    news.close()  # type: ignore[attr-defined]
    assert not alive(worker)
