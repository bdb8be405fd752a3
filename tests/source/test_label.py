"""Tests of `ucds.label`: the provider labels a client's samples, as a function and as a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.math.metrics import score
from ucds.training.loaded import FEWEST_TO_CENTRE

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF, CPU = ucds.ConsensusSettings(starts=1), ucds.Compute("cpu")


@pytest.fixture
def provider(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    """A finished source run on two domains, and `target.npy`."""
    vectors = blobs({"a": 40, "b": 24, "t": 30})
    np.savez(tmp_path / "domains.npz", a=vectors["a"], b=vectors["b"])
    np.save(tmp_path / "target.npy", vectors["t"])
    return ucds.train_source(tmp_path / "domains.npz", tmp_path / "clinic", 4, settings=BRIEF).folder


def test_the_function_and_the_command_write_the_same_labels(
    provider: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    samples, own, typed = (tmp_path / name for name in ("target.npy", "function.json", "command.json"))
    labels = ucds.label(str(provider), str(samples), str(own), compute=CPU)
    assert run("label", provider, samples, "--out", typed, "--accelerator", "cpu") == 0
    assert own.read_bytes() == typed.read_bytes()
    assert ucds.ClusterLabels.load(own).fingerprint == labels.fingerprint
    assert (labels.provider, labels.n_clusters) == ("clinic", 4)
    assert labels.ids == tuple(str(i) for i in range(30))
    predicted = ucds.load(provider, compute=CPU).predict(np.load(samples))  # 30: too few to centre
    np.testing.assert_array_equal(labels.labels, predicted)


def test_a_folder_is_seen_from_its_own_mean_and_single_rows_are_not(
    provider: Path, tmp_path: Path, blobs: Callable[..., Any]
) -> None:
    """A shift of the whole folder moves single answers, and the labels of the folder stay right."""
    truth = np.arange(FEWEST_TO_CENTRE) % 4
    target = blobs({"t": FEWEST_TO_CENTRE})["t"] + np.float32([20, 0, 0, 0, 0, 0])
    np.save(tmp_path / "shifted.npy", target)
    labels = ucds.label(provider, tmp_path / "shifted.npy", compute=CPU).labels
    model = ucds.load(provider, compute=CPU)
    alone = [int(model.predict(row[None])[0]) for row in target]
    assert score(labels, truth).accuracy > score(np.array(alone), truth).accuracy
    expected = model.outputs(model.open(target), recentred=True)[1].argmax(1)
    np.testing.assert_array_equal(labels, expected)


def test_nothing_is_written_unless_asked_for(provider: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    assert len(ucds.label(provider, tmp_path / "target.npy", compute=CPU).ids) == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == before
