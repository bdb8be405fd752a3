"""Readers of what needs PyTorch read their files or refuse them in one line, whatever is in them."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from reader_kit import Reader, check, file, saved
from safetensors.torch import save_file

from ucds.experiments.grid import read_benchmark
from ucds.experiments.records import IDENTITY, ORIGIN, read_records
from ucds.gradients.checkpoint import Checkpoint, StageProgress, read_checkpoint, write_checkpoint
from ucds.networks.weight_files import read_state_dict
from ucds.training.run_folder import CHECKPOINT_FILE

pytestmark = pytest.mark.torch

TOML = """
title = "Small"
[grid]
backbone = "resnet18"
targets = ["a"]
methods = ["po"]
seeds = [0]
"""
RUN = dict.fromkeys((*IDENTITY, *ORIGIN), "a") | {"accuracy": 0.5}


def _write_checkpoint(folder: Path) -> None:
    write_checkpoint(folder, Checkpoint("s", {"w": torch.ones(9)}, StageProgress(step=3), [], 7))


READERS = {
    "checkpoint": Reader(CHECKPOINT_FILE, _write_checkpoint, read_checkpoint),
    "weights": file("w.pth", saved(partial(torch.save, {"w": torch.ones(3)})), read_state_dict),
    "safe weights": Reader(
        "w.safetensors",
        lambda folder: save_file({"w": torch.ones(3)}, folder / "w.safetensors"),
        lambda folder: read_state_dict(folder / "w.safetensors"),
    ),
    "records": file("runs.jsonl", f"{json.dumps(RUN)}\n" * 2, read_records),
    "benchmark": file("b.toml", TOML, read_benchmark),
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path, 12, same=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", READERS)
def test_two_thousand_damaged_files(name: str, tmp_path: Path) -> None:
    check(READERS[name], tmp_path, -(-2_000 // len(READERS)), same=False)
