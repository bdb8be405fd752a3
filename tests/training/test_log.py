"""Tests of the run's log: its lines, and how a resumed run takes it up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ucds.training.log import RunLog


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def opened(folder: Path) -> RunLog:
    return RunLog(folder / "log.jsonl")


def test_a_line_holds_stage_step_kind_and_rounded_figures(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write("learn-source", 20, "losses", {"transport": 0.12345678, "mixing": 2.0})
    log.close()
    assert lines(tmp_path / "log.jsonl") == [
        {"stage": "learn-source", "step": 20, "kind": "losses", "transport": 0.123457, "mixing": 2.0}
    ]


def test_the_position_is_what_is_on_disk(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.position() == 0
    log.write("s", 1, "losses", {"a": 1.0})
    assert log.position() == (tmp_path / "log.jsonl").stat().st_size > 0
    log.close()


def test_opening_again_appends(tmp_path: Path) -> None:
    for step in (1, 2):
        log = opened(tmp_path)
        log.write("s", step, "losses", {"a": 1.0})
        assert log.position() == (tmp_path / "log.jsonl").stat().st_size
        log.close()
    assert [line["step"] for line in lines(tmp_path / "log.jsonl")] == [1, 2]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write("first", 20, "losses", {"a": 1.0})
    log.write("first", 40, "losses", {"a": 2.0})
    log.write("second", 20, "losses", {"a": 3.0})
    position = log.position()  # the checkpoint is here
    log.write("second", 40, "losses", {"a": 99.0})
    log.write("third", 20, "losses", {"a": 99.0})
    log.close()
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(b'{"stage": "third", "st')  # killed in the middle of a line

    log = opened(tmp_path)
    log.cut(position)
    log.write("second", 40, "losses", {"a": 4.0})
    log.write("third", 20, "losses", {"a": 5.0})
    log.close()
    assert [line["a"] for line in lines(tmp_path / "log.jsonl")] == [1, 2, 3, 4, 5]


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write("first", 20, "losses", {"a": 99.0})
    log.close()
    log = opened(tmp_path)
    log.cut(0)
    log.write("first", 20, "losses", {"a": 1.0})
    log.write("first", 40, "losses", {"a": 2.0})
    log.close()
    assert [line["a"] for line in lines(tmp_path / "log.jsonl")] == [1, 2]
