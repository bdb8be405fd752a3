"""Tests of commands where something is missing that is usually there: streams, a home folder, a reader."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cli_kit import run_command, run_successfully

UCDS = f"{sys.executable} -m ucds"
TRAIN = "train-target x.npy --clusters 7 --set starts=1 --out run --no-report --json"


@pytest.fixture(autouse=True)
def _place(
    tmp_path: Path, blobs: Callable[..., dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UCDS_CACHE", raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    np.save("x.npy", blobs({"a": 60})["a"])


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)


ALL_CLOSED = "0<&- 1>&- 2>&-"
OTHERS = [pytest.param(each, marks=pytest.mark.slow) for each in ("2>&-", "1>&-", "0<&-", "2>/dev/full")]


@pytest.mark.parametrize("closed", [ALL_CLOSED, *OTHERS])
def test_work_goes_on_without_streams_and_no_file_gets_their_messages(closed: str) -> None:
    done = _shell(f"{UCDS} {TRAIN} {closed}")
    assert (done.returncode, Path("run/model.safetensors").exists()) == (0, True), done.stderr
    for path in Path("run").iterdir():
        content = path.read_bytes()
        assert b"consensus 2" not in content, path  # a line of progress


def test_a_result_that_finds_no_room_is_an_error() -> None:
    done = _shell(f"{UCDS} settings pcd --json >/dev/full")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", ["--help", "settings"])
def test_a_reader_that_leaves_is_no_fault(command: str) -> None:
    done = _shell(f"{UCDS} {command} | true")
    assert "fault" not in done.stderr
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_user_without_a_home_is_told_what_to_do_and_then_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError("no such user")))
    told = run_command(*TRAIN.split())
    assert (told.status, "error: you have no home folder: set UCDS_CACHE" in told.err) == (2, True)
    monkeypatch.setenv("UCDS_CACHE", "cache")
    run_successfully(*TRAIN.split())
    assert not Path("~").exists()
