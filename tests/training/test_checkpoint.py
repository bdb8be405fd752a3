"""Tests of a checkpoint's round trip through its file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ucds.training.checkpoint import Checkpoint, StageProgress, StageResult
from ucds.training.health import Evaluation, assess
from ucds.training.run_folder import RunFolder


def evaluation(step: int) -> Evaluation:
    return assess(torch.rand(5, 3, generator=torch.Generator().manual_seed(step)).softmax(-1), step)


def written(path: Path, checkpoint: Checkpoint) -> Checkpoint:
    folder = RunFolder(path)
    folder.save_checkpoint(checkpoint)
    found = folder.load_checkpoint()
    assert found is not None
    return found


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
    found = written(tmp_path, checkpoint)
    assert isinstance(found.progress, StageProgress)
    assert [type(result) for result in found.results] == [StageResult] * 2
    assert isinstance(found.results[0].evaluations[1], Evaluation)
    assert found.results[0].evaluations[1].information == results[0].evaluations[1].information
    assert_same(asdict(found), asdict(checkpoint))


def test_a_finished_stage_has_no_progress(tmp_path: Path) -> None:
    assert written(tmp_path, Checkpoint("one", {}, None, [], 0)).progress is None
