"""A grid that is killed again and again loses no finished record and repeats none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from grid_kit import write_pictures, write_small

from ucds.experiments.cells import POINTS, UNFINISHED
from ucds.experiments.grid import read_benchmark
from ucds.experiments.records import FILE, identity_in, identity_of, read_records

KILLS = 10
MORE = '[[figures]]\nkind = "tsne"\nmethods = ["to"]\nseed = 2\n'


def start(config: Path, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ucds", "benchmark", str(config), "--data", str(folder / "data")]
    command += ["--weights", "none", "--cache", str(folder / "cache"), "--results", str(folder / "results")]
    command += ["--jobs", "2", "--threads", "1", "--accelerator", "cpu"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, cwd=folder
    )


def members(group: int) -> list[int]:
    """Processes of a group that are not yet gone."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, process_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(entry.name))
    return found


def wait_until_gone(group: int, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert members(group) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_kills_lose_no_finished_record_and_repeat_none(tmp_path: Path) -> None:
    write_pictures(tmp_path / "data")
    config = write_small(
        tmp_path,
        MORE,
        methods='methods = ["kmeans", "to", "pcd"]',
        seeds=f"seeds = {list(range(2 * KILLS))}",
        tune='tune = "full"',
    )
    benchmark = read_benchmark(config)
    records = tmp_path / "results" / "small" / FILE
    rng, finished, interrupted = np.random.default_rng(0), b"", 0
    for kill in range(KILLS):
        grid = start(config, tmp_path)
        time.sleep(rng.uniform(1.5, 6.0))
        interrupted += grid.poll() is None  # or the grid was too small to be killed so often
        # Now the grid's own process alone, whose workers must follow it; now all of them at once.
        os.killpg(grid.pid, signal.SIGKILL) if kill % 2 else grid.kill()
        grid.communicate()
        wait_until_gone(grid.pid)
        before, finished = finished, records.read_bytes() if records.exists() else b""
        assert finished.startswith(before[: before.rfind(b"\n") + 1])
    assert interrupted == KILLS
    last = start(config, tmp_path)
    assert last.wait(timeout=400) == 0, last.communicate()[1].decode()
    assert records.read_bytes().startswith(finished[: finished.rfind(b"\n") + 1])
    found = read_records(records)
    wanted = sorted(identity_of(cell) for cell in benchmark.cells())
    assert sorted(identity_in(record) for record in found) == wanted
    (drawn,) = [record["points"] for record in found if "points" in record]
    assert {path.name for path in (records.parent / POINTS).iterdir() if path.suffix == ".npz"} == {drawn}
    assert not (records.parent / UNFINISHED).exists()
