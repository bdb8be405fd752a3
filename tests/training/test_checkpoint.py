"""Tests of a checkpoint: its round trip, its damage, and the checkpoint before it, which is used then."""

from __future__ import annotations

import io
import os
import random
import resource
import signal
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from ucds.errors import DamagedFileError, NoSpaceError, UcdsWarning
from ucds.files import digest_of
from ucds.training.checkpoint import (
    Checkpoint,
    StageProgress,
    StageResult,
    read_checkpoint,
    write_checkpoint,
)
from ucds.training.health import Evaluation, assess
from ucds.training.run_folder import CHECKPOINT_FILE, EARLIER_FILE, RunFolder


def checkpoint(step: int) -> Checkpoint:
    evaluation = assess(torch.full((4, 3), 1 / 3), step)
    result = StageResult("one", [evaluation], 0, torch.ones(1, 3), 0.5)
    return Checkpoint("two", {"w": torch.arange(50.0) + step}, StageProgress(step=step), [result], 7)


def step_of(found: Checkpoint | None) -> int:
    assert found is not None
    assert found.progress is not None
    assert torch.equal(found.model["w"], torch.arange(50.0) + found.progress.step)
    return found.progress.step


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with two checkpoints."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    return tmp_path


def test_the_latest_is_read_and_the_one_before_it_is_kept(run: Path) -> None:
    with warnings.catch_warnings(action="error"):
        assert step_of(read_checkpoint(run)) == 2
    write_checkpoint(run, checkpoint(3))
    (run / CHECKPOINT_FILE).unlink()  # as after a kill between the two renamings
    with warnings.catch_warnings(action="error"):
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


FORMS: dict[str, Any] = {
    "dictionary": {"a": 1},
    "list": [1, 2],
    "tensor": torch.zeros(3),
    "nothing": None,
    "weights of another kind": Checkpoint("s", {"w": 1}, None, [], 0),  # type: ignore[dict-item]
    "no results": Checkpoint("s", {}, None, None, 0),  # type: ignore[arg-type]
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
def test_damage_falls_back_to_the_one_before(run: Path, content: bytes) -> None:
    (run / CHECKPOINT_FILE).write_bytes(content)
    with pytest.warns(UcdsWarning, match=r"checkpoint\.pt is damaged \(.+\): the one before it is used"):
        assert step_of(read_checkpoint(run)) == 1
    (run / EARLIER_FILE).write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"checkpoint\.pt is damaged \(.+\): delete it to start over"):
        read_checkpoint(run)


def test_any_changed_bit_is_found(run: Path) -> None:
    path = run / CHECKPOINT_FILE
    whole, generator = path.read_bytes(), random.Random(0)
    for place in [*range(90), *(generator.randrange(len(whole)) for _ in range(110))]:
        changed = whole[place] ^ 1 << generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
        with pytest.warns(UcdsWarning, match="the one before it is used"):
            assert step_of(read_checkpoint(run)) == 1


def test_an_unreadable_checkpoint_is_not_called_damaged(run: Path) -> None:
    (run / CHECKPOINT_FILE).unlink()
    (run / CHECKPOINT_FILE).mkdir()
    with pytest.warns(UcdsWarning, match=r"checkpoint\.pt cannot be read \(Is a directory\): the one before"):
        assert step_of(read_checkpoint(run)) == 1


@pytest.mark.parametrize("survived", [0, 1])
def test_what_was_being_replaced_is_never_lost(
    survived: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stops at one of the two renamings."""
    renamings = [os.replace] * survived

    def replace(self: Path, target: Path) -> None:
        if not renamings:
            raise KeyboardInterrupt
        renamings.pop()(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(run, checkpoint(3))
    assert step_of(read_checkpoint(run)) == 2


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("code of a checkpoint was run",)


def test_a_checkpoint_cannot_run_code(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / CHECKPOINT_FILE).write_bytes(sealed({"stage": Trap()}))
    with pytest.warns(UcdsWarning, match="is damaged"):
        assert step_of(read_checkpoint(run)) == 1
    assert capsys.readouterr().out == ""


def test_a_full_disk_is_told_in_words_and_keeps_the_last_checkpoint(run: Path) -> None:
    large = Checkpoint("s", {"w": torch.randn(100_000)}, None, [], 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(NoSpaceError, match=r"cannot write .*/checkpoint\.pt: File too large"):
            write_checkpoint(run, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert step_of(read_checkpoint(run)) == 2
    assert {path.name for path in run.iterdir()} == {CHECKPOINT_FILE, EARLIER_FILE}


def evaluation(step: int) -> Evaluation:
    return assess(torch.rand(5, 3, generator=torch.Generator().manual_seed(step)).softmax(-1), step)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
        assert found.dtype == expected.dtype
    elif isinstance(expected, dict | list):
        assert len(found) == len(expected)
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            assert_same(found[key], expected[key])
    else:
        assert found == expected


def test_everything_survives(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    results = [
        StageResult("one", [evaluation(2), evaluation(4)], 1, torch.rand(2, 3), 1.5),
        StageResult("two", [evaluation(0)], 0, torch.rand(1, 3), 0.5, torch.rand(5, 3)),
    ]
    progress = StageProgress(
        7, 2.5, [evaluation(3)], dict(model.state_dict()), torch.rand(1, 3), optimiser.state_dict()
    )
    progress.state = {"targets": torch.rand(5, 3)}
    checkpoint = Checkpoint("three", dict(model.state_dict()), progress, results, 123)
    write_checkpoint(tmp_path, checkpoint)
    found = read_checkpoint(tmp_path)
    assert found is not None
    assert isinstance(found.progress, StageProgress)
    assert [type(result) for result in found.results] == [StageResult] * 2
    assert isinstance(found.results[0].evaluations[1], Evaluation)
    assert found.results[0].evaluations[1].information == results[0].evaluations[1].information
    assert_same(asdict(found), asdict(checkpoint))
