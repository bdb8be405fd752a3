"""Tests of the run folder: crashes, second starts, mix-ups, damage."""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from ucds.config import ConsensusSettings
from ucds.errors import DamagedFileError, UserError
from ucds.training.options import Compute, RunOptions
from ucds.training.run import open_run
from ucds.training.run_folder import RunFolder

IDENTITY: dict[str, Any] = {
    "role": "source",
    "data": "abc",
    "seed": 0,
    "settings": {"epsilon": 0.01, "batch_size": 64},
    "domains": ("a", "b"),
    "versions": {"torch": "1"},
}


def opened(path: Path, *, resume: bool = False, **changes: Any) -> RunFolder:
    folder = RunFolder(path)
    folder.open(IDENTITY | changes, resume=resume)
    return folder


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


@pytest.mark.parametrize("resume", [True, False])
def test_a_new_folder_says_what_was_run(resume: bool, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    opened(run, resume=resume).close()
    assert names(run) == {".lock", "run.json"}
    assert json.loads((run / "run.json").read_text()) == IDENTITY | {"domains": ["a", "b"]}
    assert run.stat().st_mode & 0o777 == 0o700  # a model tells of its training data


def test_what_a_crash_left_before_the_description_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".run.json.x7").write_text("{half")
    opened(tmp_path).close()
    assert json.loads((tmp_path / "run.json").read_text())["data"] == "abc"


def test_a_second_start_and_other_versions_change_nothing(tmp_path: Path) -> None:
    opened(tmp_path).close()
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(UserError, match="is not empty: choose another `out`, or use `resume=True`"):
        opened(tmp_path, seed=1)
    opened(tmp_path, resume=True, versions={"torch": "2"}).close()
    assert (tmp_path / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "its seed is 0, not 1"),
        ({"settings": {"epsilon": 0.01}}, "its settings.batch_size is 64, not None"),
        ({"domains": ("a",)}, r"its domains is \['a', 'b'\], not \['a'\]"),
        ({"labels": "f00"}, "its labels is None, not 'f00'"),
    ],
)
def test_another_run_is_not_resumed(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    opened(tmp_path).close()
    with pytest.raises(UserError, match=f"holds another run: {words}; choose another `out`"):
        opened(tmp_path, resume=True, **changes)


@pytest.mark.parametrize("content", [b"", b"{half", b"[]", b"\xff"])
def test_a_damaged_description_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match="run.json is damaged"):
        opened(tmp_path, resume=True)


HOLD = """
import sys
from pathlib import Path
from ucds.training.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.open({}, resume=False)
print("held", flush=True)
sys.stdin.read()
"""


def test_only_one_process_at_a_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        folder = RunFolder(tmp_path)
        with pytest.raises(UserError, match="another process is training in"):
            folder.open({}, resume=True)
        other.kill()  # as a crash would
        other.wait()
    folder.open({}, resume=True)
    with pytest.raises(UserError, match="another process"):
        RunFolder(tmp_path).open({}, resume=True)
    folder.close()
    folder.close()
    RunFolder(tmp_path).open({}, resume=True)


def test_a_resumed_run_that_is_refused_is_kept(tmp_path: Path) -> None:
    def start(resume: bool) -> AbstractContextManager[object]:
        return open_run(tmp_path / "run", {}, ConsensusSettings(), RunOptions(resume=resume), Compute("cpu"))

    with start(resume=False):
        pass
    before = names(tmp_path / "run")
    with pytest.raises(UserError, match="no"), start(resume=True):
        raise UserError("no")
    assert names(tmp_path / "run") == before
