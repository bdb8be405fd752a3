"""Tests of a session: results, checkpoints and log of a run, and what a resumed one finds."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from ucds.config import PCDSettings
from ucds.training.checkpoint import StageProgress, StageResult
from ucds.training.health import assess
from ucds.training.options import Compute
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session

WEIGHTS = {"w": torch.arange(4.0)}


def opened(path: Path | None) -> Session[PCDSettings]:
    folder = None if path is None else RunFolder(path)
    return Session(Runtime(Compute("cpu", cache=None), folder=folder), PCDSettings())


def result(name: str, step: int = 5) -> StageResult:
    predictions = torch.eye(3)[torch.tensor([0, 1, 2, 1])]
    return StageResult(name, [assess(predictions, step)], 0, torch.full((1, 3), 1 / 3), 0.5)


def test_without_a_folder_results_are_kept_in_memory_alone() -> None:
    session = opened(None)
    session.write("one", 1, "losses", {"a": 1.0})
    session.save("one", WEIGHTS, StageProgress())
    session.conclude(result("one"), WEIGHTS)
    session.close()
    assert [found.name for found in session.results] == ["one"]
    assert session.checkpoint is None
    assert session.result_of("one") is session.results[0]
    assert session.result_of("two") is None


def test_a_resumed_session_finds_the_finished_stages_and_the_stage_in_progress(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.conclude(result("one"), WEIGHTS)
    first.save("two", {"w": WEIGHTS["w"] + 1}, StageProgress(step=3, seconds=2.0))
    first.close()
    again = opened(tmp_path)
    assert [found.name for found in again.results] == ["one"]
    assert again.checkpoint is not None
    assert again.checkpoint.stage == "two"
    assert again.checkpoint.progress == StageProgress(step=3, seconds=2.0)
    assert torch.equal(again.checkpoint.model["w"], WEIGHTS["w"] + 1)
    again.conclude(result("two"), WEIGHTS)
    assert again.checkpoint is None
    again.close()
    last = opened(tmp_path)
    assert [found.name for found in last.results] == ["one", "two"]
    assert last.checkpoint is not None
    assert last.checkpoint.progress is None
    last.close()


def test_a_resumed_session_cuts_the_log_at_its_checkpoint(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write("one", 1, "losses", {"a": 1.0})
    first.save("one", WEIGHTS, StageProgress(step=1))
    first.write("one", 2, "losses", {"a": 99.0})
    first.close()
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"stage": "one", "st')  # killed in the middle of a line
    again = opened(tmp_path)
    again.write("one", 2, "losses", {"a": 2.0})
    again.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["a"] for line in lines] == [1, 2]


def test_a_line_of_the_log_holds_stage_step_kind_and_rounded_figures(tmp_path: Path) -> None:
    session = opened(tmp_path)
    session.write("learn-source", 20, "losses", {"transport": 0.12345678, "mixing": 2.0})
    session.close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    expected = {"stage": "learn-source", "step": 20, "kind": "losses", "transport": 0.123457, "mixing": 2.0}
    assert json.loads(line) == expected


def test_a_session_without_a_checkpoint_begins_the_log_anew(tmp_path: Path) -> None:
    for value in (99.0, 1.0):
        session = opened(tmp_path)
        session.write("one", 1, "losses", {"a": value})
        session.close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line)["a"] == 1
