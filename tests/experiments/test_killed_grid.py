"""Two grids at once that are killed again and again lose no finished record and repeat none."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import write_pictures, write_small

from ucds.experiments.cells import UNFINISHED
from ucds.experiments.grid import read_benchmark
from ucds.experiments.records import FILE, describe, identity, read_records

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

KILLS = 10
LONGEST = 1200  # seconds: at a load of ten on two cores, the last run takes over 400
SCORES = ("clusters_in_use", "accuracy", "nmi", "ari")


def start(config: Path, folder: Path, results: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ucds", "benchmark", str(config), "--data", str(folder / "data")]
    command += ["--weights", "none", "--results", str(folder / results)]
    command += ["--jobs", "2", "--accelerator", "cpu"]
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


def kill(grid: subprocess.Popen[bytes], whole: bool) -> bool:
    """Kill a grid's own process alone, whose workers must follow it, or all at once; was it running?"""
    running = grid.poll() is None
    os.killpg(grid.pid, signal.SIGKILL) if whole else grid.kill()
    grid.communicate()
    wait_until_gone(grid.pid)
    return running


def finished_after(records: Path, before: bytes) -> bytes:
    """The records after a kill, which must still hold the whole lines that were there before it."""
    finished = records.read_bytes() if records.exists() else b""
    assert finished.startswith(before[: before.rfind(b"\n") + 1])
    return finished


def write_grid(folder: Path) -> Path:
    """A grid that is not finished between the kills."""
    write_pictures(folder / "data")
    methods, seeds = ["kmeans", "to", "pcd"], list(range(2 * KILLS))
    network = 'backbone = "test_resnet"\nimage_size = 32'
    return write_small(folder, backbone=network, methods=methods, seeds=seeds, tune='tune = "full"')


def read_finished(config: Path, records: Path) -> list[dict[str, Any]]:
    """The records of a grid that has ended: one for each of its cells, in order of the cells."""
    found = sorted(read_records(records), key=identity)
    wanted = sorted(identity(describe(cell)) for cell in read_benchmark(config).cells())
    assert [identity(record) for record in found] == wanted
    assert not (records.parent / UNFINISHED).exists()
    return found


def test_kills_lose_no_finished_record_repeat_none_and_change_no_result(tmp_path: Path) -> None:
    config, names, rng = write_grid(tmp_path), ("one", "two"), np.random.default_rng(1)
    records = [tmp_path / name / "small" / FILE for name in names]
    finished, interrupted = [b"", b""], 0
    for turn in range(KILLS):  # they share the pictures and the cache
        grids = [start(config, tmp_path, name) for name in names]
        for which in rng.permutation(2):
            time.sleep(rng.uniform(1.0, 6.0))
            interrupted += kill(grids[which], whole=turn % 2 == 1)
            finished[which] = finished_after(records[which], finished[which])
    assert interrupted == 2 * KILLS  # or the grid was too small to be killed so often
    for grid in [start(config, tmp_path, name) for name in names]:
        assert grid.wait(timeout=LONGEST) == 0, grid.communicate()[1].decode()
    one, two = (
        [[record[name] for name in SCORES] for record in read_finished(config, path)] for path in records
    )
    assert one == two
