"""Tests of commands where something is missing that is usually there: streams, a home folder, a reader."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

TRAIN = (
    f"{sys.executable} -m ucds train-target x.npy --clusters 7 --set starts=1 --out run --no-report --json"
)
NOBODY = "unshare -U --map-user=12345 --map-group=12345 env -u HOME -u XDG_CACHE_HOME"


@pytest.fixture(autouse=True)
def _place(
    tmp_path: Path, blobs: Callable[..., dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UCDS_CACHE", raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    np.save("x.npy", blobs({"a": 60})["a"])


def _shell(command: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | more
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], env=env, capture_output=True, text=True
    )


ALL_CLOSED = "0<&- 1>&- 2>&-"
OTHERS = [pytest.param(each, marks=pytest.mark.slow) for each in ("2>&-", "1>&-", "0<&-", "2>/dev/full")]


@pytest.mark.parametrize("closed", [ALL_CLOSED, *OTHERS])
def test_work_goes_on_without_streams_and_no_file_gets_their_messages(closed: str) -> None:
    done = _shell(f"{TRAIN} {closed}")
    assert (done.returncode, Path("run/model.safetensors").exists()) == (0, True), done.stderr
    for path in Path("run").iterdir():
        content = path.read_bytes()
        assert b"consensus 2" not in content, path  # a line of progress
    assert _shell(f"{sys.executable} -m ucds predict run x.npy --out c.csv {closed}").returncode == 0
    assert Path("c.csv").read_text().startswith('"sample",')


def test_a_result_that_finds_no_room_is_an_error() -> None:
    done = _shell(f"{sys.executable} -m ucds settings pcd --json >/dev/full")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", ["--help", "settings"])
def test_a_reader_that_leaves_is_no_fault(command: str) -> None:
    done = _shell(f"{sys.executable} -m ucds {command} | true")
    assert "fault" not in done.stderr
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_user_without_a_home_is_told_what_to_do_and_then_needs_none() -> None:
    if _shell(f"{NOBODY} true").returncode:
        pytest.skip("this user may not make namespaces")
    done = _shell(f"{NOBODY} {TRAIN}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: you have no home folder: set UCDS_CACHE to a folder for the cache"
    )
    os.chmod(".", 0o777)  # noqa: PTH101
    done = _shell(f"{NOBODY} {TRAIN}", UCDS_CACHE="cache")
    assert done.returncode == 0, done.stderr
    assert not Path("~").exists()
