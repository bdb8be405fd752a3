"""Tests of what a person is told while a run goes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

import pytest

from ucds.training.progress import Bar, Lines, Quiet, terminal_reporter, told_to


class Recorder(Quiet):
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def begin(self, title: str, total: int, done: int = 0) -> None:
        self.calls.append(("begin", title, total, done))

    def advance(self, done: int, figures: Mapping[str, float]) -> None:
        self.calls.append(("advance", done, dict(figures)))

    def end(self) -> None:
        self.calls.append(("end",))


def lines_of(steps: range, total: int, capsys: pytest.CaptureFixture[str], done: int = 0) -> list[str]:
    reporter = Lines()
    reporter.begin("stage", total, done)
    for step in steps:
        reporter.advance(step, {"loss": 0.123456, "clusters": 4})
    reporter.end()
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_lines_come_about_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(range(1, 1001), 1000, capsys)
    assert [line.split()[1] for line in lines] == [f"{i}00/1000" for i in range(1, 11)]
    assert re.fullmatch(r"stage 100/1000 loss 0\.1235 clusters 4 \(\d+ s left\)", lines[0])
    assert lines[-1].endswith("(0 s left)")


@pytest.mark.parametrize("total", [1, 2, 3, 9, 10, 11, 37])
def test_the_last_step_is_always_told_and_never_more_than_eleven(
    total: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(range(1, total + 1), total, capsys)
    assert lines[-1].startswith(f"stage {total}/{total} ")
    assert len(lines) == min(total, len(lines)) <= 11


def test_a_resumed_piece_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(range(51, 101), 100, capsys, done=50)
    assert [line.split()[1] for line in lines] == ["60/100", "70/100", "80/100", "90/100", "100/100"]


def test_time_left_counts_only_what_was_done_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 20.0])
    monkeypatch.setattr("ucds.training.progress.time.monotonic", lambda: next(clock))
    reporter = Lines()
    reporter.begin("stage", 100, 50)
    reporter.advance(60, {})  # ten steps in twenty seconds, forty to go
    assert "(80 s left)" in capsys.readouterr().err


def test_told_to_begins_once_and_ends_once() -> None:
    recorder = Recorder()
    advance = told_to(recorder, "decode images")
    assert recorder.calls == []
    for done in (2, 4, 5):
        advance(done, 5)
    assert recorder.calls == [
        ("begin", "decode images", 5, 0),
        ("advance", 2, {}),
        ("advance", 4, {}),
        ("advance", 5, {}),
        ("end",),
    ]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Quiet()
    reporter.begin("stage", 3)
    reporter.advance(1, {"loss": 1.0})
    reporter.say("hello")
    reporter.end()
    assert capsys.readouterr() == ("", "")


def test_the_bar_prints_words_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar.advance(1, {})
    bar.end()  # neither needs a beginning
    bar.begin("stage", 4, 1)
    bar.advance(4, {"loss": 0.5})
    bar.say("[bold]not markup[/bold] :smile: " + "x" * 200)
    bar.end()
    output = capsys.readouterr()
    assert output.out == ""
    assert "[bold]not markup[/bold] :smile: " + "x" * 200 + "\n" in output.err
    assert "4/4" in output.err
    assert "loss 0.5" in output.err


def test_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(terminal_reporter(), Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert isinstance(terminal_reporter(), Lines)
