"""Tests of a session: results, checkpoints and log of a run, and what a resumed one finds."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from ucds.config import PCDSettings
from ucds.training.checkpoint import StageProgress
from ucds.training.options import Compute
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session

WEIGHTS = {"w": torch.arange(4.0)}


def opened(path: Path) -> closing[Session[PCDSettings]]:
    return closing(Session(Runtime(Compute("cpu", cache=None), folder=RunFolder(path)), PCDSettings()))


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_a_resumed_session_cuts_the_log_at_its_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        first.write("one", 1, "losses", {"a": 1.0})
        first.save("one", WEIGHTS, StageProgress(step=1))
        first.write("one", 2, "losses", {"a": 99.0})
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"stage": "one", "st')  # killed in the middle of a line
    with opened(tmp_path) as again:
        again.write("one", 2, "losses", {"a": 2.0})
    assert [line["a"] for line in logged(tmp_path)] == [1, 2]


def test_without_a_checkpoint_the_log_begins_anew_and_its_figures_are_rounded(tmp_path: Path) -> None:
    for value in (99.0, 0.12345678):
        with opened(tmp_path) as session:
            session.write("learn-source", 20, "losses", {"transport": value, "mixing": 2.0})
    expected = {"stage": "learn-source", "step": 20, "kind": "losses", "transport": 0.123457, "mixing": 2.0}
    assert logged(tmp_path) == [expected]
