"""Two processes of 16 samples train as one of 32 does: same losses, same weights; and only one clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("work.py")


def run_work(what: str, devices: int, out: Path) -> str:
    """Run work of ``work.py`` by several processes, and return what it prints."""
    command = [sys.executable, str(SCRIPT), what, str(devices), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(out: Path) -> list[dict[str, float | str]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:stage .* empty:ucds.errors.UcdsWarning")
def test_two_processes_equal_one(tmp_path: Path) -> None:
    run_path(str(SCRIPT))["run_stages"](1, tmp_path / "one")
    assert "processes: 2" in run_work("stages", 2, tmp_path / "two")
    alone, together = (torch.load(tmp_path / name / "weights.pt") for name in ("one", "two"))
    for side in ("source", "target"):
        torch.testing.assert_close(dict(together[side]), dict(alone[side]), rtol=2e-4, atol=2e-5)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) > 6
    for expected_line, found_line in zip(one, two, strict=True):
        for key, expected in expected_line.items():
            found = found_line[key]
            assert found == (
                expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-3, abs=2e-4)
            )


@pytest.mark.parametrize("how", ["found", "refused"])
def test_only_the_first_of_two_processes_clusters(how: str, tmp_path: Path) -> None:
    run_work(how, 2, tmp_path)
    assert len(list(tmp_path.glob("call-*"))) == 1
    one, two = ((tmp_path / f"end-{rank}").read_text() for rank in (0, 1))
    assert one == two
    assert (one == "no clusters today") == (how == "refused")


def test_each_of_two_processes_computes_its_share_of_the_features(tmp_path: Path) -> None:
    for devices in (1, 2):
        (tmp_path / str(devices)).mkdir()
        run_work("features", devices, tmp_path / str(devices))
    alone = np.load(tmp_path / "1" / "features-0.npy")
    for rank in (0, 1):
        np.testing.assert_array_equal(np.load(tmp_path / "2" / f"features-{rank}.npy"), alone)
        assert (tmp_path / "2" / f"seen-{rank}").read_text() == "23"  # of 45, where one process sees all
    assert (tmp_path / "1" / "seen-0").read_text() == "45"
