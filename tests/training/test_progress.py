"""Tests of what a person is told while a run goes on."""

import io
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from ucds.training.progress import STARTING, WORKING, Bar, Lines, end_bar, terminal_reporter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Takes the place of the module ``time``; the test says how time goes by."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("ucds.training.progress.time", clock)
    return clock


LinesOf = Callable[..., list[str]]


@pytest.fixture
def lines_of(capsys: pytest.CaptureFixture[str], clock: SimpleNamespace) -> LinesOf:
    """Lines about steps of which each takes some seconds."""

    def told(steps: range, total: int, done: int = 0, each: float = 1.0) -> list[str]:
        reporter = Lines()
        reporter.show("stage", done, total)
        for step in steps:
            clock.now += each
            reporter.show("stage", step, total, {"loss": 0.123456, "clusters": 4})
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err.splitlines()

    return told


@pytest.mark.parametrize("total", [1, 9, 10, 11, 37])
def test_the_last_step_is_always_told_and_never_more_than_eleven(total: int, lines_of: LinesOf) -> None:
    lines = lines_of(range(1, total + 1), total)
    assert lines[-1] == f"stage {total}/{total} loss 0.1235 clusters 4 (0 s left)"
    assert len(lines) <= 11


def test_a_resumed_piece_goes_on_where_it_was(lines_of: LinesOf) -> None:
    lines = lines_of(range(51, 101), 100, done=50)
    assert [line.split()[1] for line in lines] == ["60/100", "70/100", "80/100", "90/100", "100/100"]
    assert lines[0].endswith("(40 s left)")  # ten steps in ten seconds, forty to go


def test_quick_work_gets_one_line_and_long_work_is_told_of_before_a_tenth_is_done(lines_of: LinesOf) -> None:
    assert lines_of(range(1, 9), 8, each=0.1) == ["stage 8/8 loss 0.1235 clusters 4 (0 s left)"]
    # Six steps in 3 seconds: 994 more take 497 seconds.
    assert lines_of(range(1, 21), 1000, each=0.5) == ["stage 6/1000 loss 0.1235 clusters 4 (497 s left)"]


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Put a terminal of 80 columns in place of the standard error."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    return screen


def drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    """What a bar draws for a stage with many figures."""
    screen, bar = terminal(monkeypatch), Bar()
    bar.show("refine-target", 100_000, 123_456)
    figures = dict.fromkeys(("transport", "information", "mixing", "clusters"), 0.123456)
    bar.show("refine-target", 123_000, 123_456, figures)
    end_bar()
    return screen.getvalue()


def test_a_bar_fits_80_columns_and_has_colours_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    drawn = drawn_on_a_terminal(monkeypatch)
    assert coloured.search(drawn)
    rows = [row for row in re.split(r"[\r\n]+", re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", drawn)) if row]
    assert max(map(len, rows)) <= 80
    assert re.match(r"refine-target .* 123,000/123,456 --:-- left transport 0.1235 .*…", rows[-1])
    monkeypatch.setenv("NO_COLOR", "1")
    assert not coloured.search(drawn_on_a_terminal(monkeypatch))


def test_the_terminal_of_a_command_is_never_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moving bar fills the time before, between and after pieces of work, until a result is printed."""
    screen, bar = terminal(monkeypatch), Bar(command=True)
    bar.show(STARTING, 0, 0)
    assert STARTING in screen.getvalue()
    bar.show("decode images", 0, 2)
    bar.show("decode images", 2, 2)
    assert WORKING in screen.getvalue()
    end_bar()
    end_bar()  # a second call does nothing
    drawn = screen.getvalue()
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") > 0  # the cursor comes back
    print("result", file=sys.stderr)
    assert screen.getvalue() == drawn + "result\n"


def test_the_bar_prints_words_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar.show("stage", 1, 4)
    bar.say("[bold]not markup[/bold] :smile: " + "x" * 200)
    bar.show("stage", 4, 4, {"loss": 0.5})
    output = capsys.readouterr()
    assert output.out == ""
    assert "[bold]not markup[/bold] :smile: " + "x" * 200 + "\n" in output.err
    assert "4/4" in output.err
    assert "loss 0.5" in output.err


def test_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, kind in ((True, Bar), (False, Lines)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda answer=is_terminal: answer, raising=False)
        assert isinstance(terminal_reporter(), kind)
