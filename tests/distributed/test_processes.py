"""Two processes of 16 samples train as one process of 32 does: same losses, same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("run_stages.py")


def run(devices: int, out: Path) -> dict[str, dict[str, torch.Tensor]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(devices), str(out)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert f"processes: {devices}" in done.stdout
    weights: dict[str, dict[str, torch.Tensor]] = torch.load(out / "weights.pt")
    return weights


def losses(out: Path) -> list[dict[str, float | str]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.mark.distributed
def test_two_processes_equal_one(tmp_path: Path) -> None:
    alone, together = run(1, tmp_path / "one"), run(2, tmp_path / "two")
    for side in ("source", "target"):
        assert alone[side].keys() == together[side].keys()
        for name, expected in alone[side].items():
            torch.testing.assert_close(
                together[side][name], expected, rtol=2e-4, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}"
            )
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) > 6
    for expected_line, found_line in zip(one, two, strict=True):
        for key, expected in expected_line.items():
            found = found_line[key]
            assert found == (
                expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-3, abs=2e-4)
            )
