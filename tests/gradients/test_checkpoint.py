"""Tests of a checkpoint: its round trip, its damage, and the log that it cuts."""

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ucds.config import PCDSettings
from ucds.errors import DamagedFileError
from ucds.files import digest_of
from ucds.gradients.checkpoint import Checkpoint, StageProgress, read_checkpoint, write_checkpoint
from ucds.gradients.session import Session
from ucds.training.options import Compute
from ucds.training.results import StageResult, assess
from ucds.training.run_folder import CHECKPOINT_FILE, RunFolder

pytestmark = pytest.mark.torch


def checkpoint(step: int) -> Checkpoint:
    evaluation = assess(np.full((4, 3), 1 / 3, np.float32), step)
    result = StageResult("one", [evaluation], 0, np.ones((1, 3), np.float32), 0.5)
    return Checkpoint("two", {"w": torch.arange(50.0) + step}, StageProgress(step=step), [result], 7)


def step_of(found: Checkpoint | None) -> int:
    assert found is not None
    assert found.progress is not None
    assert torch.equal(found.model["w"], torch.arange(50.0) + found.progress.step)
    return found.progress.step


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder in which one checkpoint has replaced another one."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    return tmp_path


def test_the_latest_is_read_until_it_is_dropped(run: Path) -> None:
    assert step_of(read_checkpoint(run)) == 2
    folder = RunFolder(run)
    assert folder.has_checkpoint()
    folder.drop_checkpoint()
    assert not folder.has_checkpoint()
    assert read_checkpoint(run) is None
    assert list(run.iterdir()) == []


def saved(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def sealed(content: Any) -> bytes:
    """Return a file with a true digest that holds something else than a checkpoint."""
    return b"ucds-checkpoint/1 %s\n" % digest_of(saved(content)).encode() + saved(content)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code of a checkpoint was run",)


FORMS: dict[str, Any] = {
    "code": {"stage": Trap()},
    "dictionary": {"a": 1},
    "weights of another kind": Checkpoint("s", {"w": 1}, None, [], 0),  # type: ignore[dict-item]
    "results of another kind": Checkpoint("s", {}, None, [{}], 0),  # type: ignore[list-item]
    "progress of another kind": Checkpoint("s", {}, {"step": 1}, [], 0),  # type: ignore[arg-type]
}
DAMAGES = {
    "empty": b"",
    "text": b"not a checkpoint\n",
    "a file without digest": saved({"a": 1}),
    "cut": sealed([1])[:100],
    "junk after a true head": b"ucds-checkpoint/1 %s\njunk" % digest_of(b"junk").encode(),
} | {f"sealed {name}": sealed(content) for name, content in FORMS.items()}


@pytest.mark.parametrize("content", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told_and_no_code_is_run(
    run: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / CHECKPOINT_FILE).write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"checkpoint\.pt is damaged \(.+\): delete it to start over"):
        read_checkpoint(run)
    assert capsys.readouterr().out == ""


WEIGHTS = {"w": torch.arange(4.0)}


def opened(path: Path) -> closing[Session[PCDSettings]]:
    session = Session(PCDSettings(), Compute("cpu", cache=None), folder=RunFolder(path))
    session.open({}, resume=(path / "run.json").exists())
    return closing(session)


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
