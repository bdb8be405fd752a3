"""Tests of the commands on a terminal: something is shown at once, and an interrupt is heard soon."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest
from cli_kit import WITHOUT, run_command

LIBRARIES = "numpy torch scipy sklearn timm fastapi sqlalchemy"


@dataclass
class Terminal:
    """A program on a terminal of 80 columns.

    Attributes:
        process: the program.
        screen: file descriptor of the terminal.
        drawn: what the program has written so far.
    """

    process: subprocess.Popen[bytes]
    screen: int
    drawn: bytes = field(default=b"")

    def read(self, wanted: bytes = b"\0", seconds: float = 120.0) -> bool:
        """Read until something is written, the program ends, or time is up; return whether it was."""
        deadline = time.monotonic() + seconds
        while wanted not in self.drawn and time.monotonic() < deadline:
            if select.select([self.screen], [], [], 0.1)[0]:
                try:
                    self.drawn += os.read(self.screen, 65536)
                except OSError:  # the program has ended
                    break
        return wanted in self.drawn


@contextmanager
def on_a_terminal(*command: str | Path) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)

    def take_the_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        preexec_fn=take_the_terminal,  # an interrupt key is sent to the programs of the terminal
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


COMMANDS = (
    "train-source data --clusters 3 --out run",
    "label run images --out labels.json",
    "serve run",
    "keys list --ledger run",
    "ledger verify --ledger run",
    "audit run --members a --others b --out audit.html",
    "features images --out features",
    "query images --url https://nowhere --key k --out labels.json",
    "train-target images --clusters 3 --out run",
    "predict run images --out clusters.csv",
    "review run",
    "report FINISHED",
    "export FINISHED",
    "evaluate FINISHED data",
    "demo",
    "benchmark config.toml --data data",
    "table config.toml",
)


def test_a_command_shows_something_before_it_loads_libraries(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()  # some look for the model's file before all else
    commands = [command.replace("FINISHED", str(tmp_path)) for command in COMMANDS]
    with on_a_terminal("-c", WITHOUT, LIBRARIES, *commands) as terminal:
        terminal.read()
        assert terminal.process.wait() == 0
    *shown, _ = terminal.drawn.split(b"ENDED 99")
    assert len(shown) == len(COMMANDS)
    for command, drawn in zip(COMMANDS, shown, strict=True):
        assert re.search(rb"starting|loading the model of ", drawn), command


def test_an_interrupt_before_any_work_is_told() -> None:
    interrupted = WITHOUT.replace("raise SystemExit(99)", "raise KeyboardInterrupt")
    with on_a_terminal("-c", interrupted, LIBRARIES, "keys list --ledger run") as terminal:
        assert terminal.read(b"ENDED 130", 60), terminal.drawn
    assert b"stopped\r\n" in terminal.drawn


@pytest.mark.slow
@pytest.mark.parametrize("work", [b"k-means", b"find the consensus"])
def test_an_interrupt_is_heard_within_two_seconds_of_work(work: bytes, tmp_path: Path) -> None:
    """Seconds of the processor count, which other programs on the machine do not prolong."""
    vectors = np.random.default_rng(0).normal(size=(12_000, 64)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    training = ("train-target", tmp_path / "vectors.npy", "--clusters", "30", "--out", tmp_path / "run")
    with on_a_terminal("-m", "ucds", *training, "--accelerator", "cpu") as terminal:
        assert terminal.read(work, 600)
        before = _seconds_of(terminal.process.pid)
        os.write(terminal.screen, b"\x03")
        assert terminal.read(b"stopping as soon as all work is saved", 60)
        assert terminal.read(b"stopped; what is finished is saved: run the same command with --resume", 60)
        used = _seconds_of(terminal.process.pid) - before
        assert terminal.process.wait(60) == 130
    assert used < 2
    rows = re.sub(rb"\x1b\[[?0-9;]*[A-Za-z]|\^C", b"", terminal.drawn).decode()  # ^C is the key's echo
    assert max(len(row) for row in re.split(r"[\r\n]+", rows)) <= 80
    assert terminal.drawn.count(b"\x1b[?25l") == terminal.drawn.count(b"\x1b[?25h")  # the cursor is back


def _seconds_of(pid: int) -> float:
    """Processor time that a process has used, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@pytest.mark.parametrize("group", ["keys", "ledger"])
def test_a_group_of_commands_alone_shows_its_help_and_no_error(group: str) -> None:
    done = run_command(group)
    assert (done.status, done.err) == (0, "")
    assert "list" in done.out or "verify" in done.out
