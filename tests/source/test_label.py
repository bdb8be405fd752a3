"""Tests of `ucds.label`: the provider labels a client's samples, as a function and as a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds

pytestmark = pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning")

BRIEF, CPU = ucds.ConsensusSettings(starts=1), ucds.Compute("cpu")


def test_the_function_and_the_command_write_the_same_labels(
    tmp_path: Path, blobs: Callable[..., Any], run: Callable[..., int]
) -> None:
    vectors = blobs({"a": 40, "b": 24, "t": 30})
    np.savez(tmp_path / "domains.npz", a=vectors["a"], b=vectors["b"])
    np.save(tmp_path / "target.npy", vectors["t"])
    provider = ucds.train_source(tmp_path / "domains.npz", tmp_path / "clinic", 4, settings=BRIEF).folder
    samples, own, typed = (tmp_path / name for name in ("target.npy", "function.json", "command.json"))
    before = sorted(tmp_path.rglob("*"))
    assert len(ucds.label(provider, samples, compute=CPU).ids) == 30
    assert sorted(tmp_path.rglob("*")) == before  # nothing is written unless asked for
    labels = ucds.label(str(provider), str(samples), str(own), compute=CPU)
    assert run("label", provider, samples, "--out", typed, "--accelerator", "cpu") == 0
    assert own.read_bytes() == typed.read_bytes()
    assert ucds.ClusterLabels.load(own).fingerprint == labels.fingerprint
    assert (labels.provider, labels.n_clusters) == ("clinic", 4)
    assert labels.ids == tuple(str(i) for i in range(30))
    predicted = ucds.load(provider, compute=CPU).predict(np.load(samples))  # 30: too few to centre
    np.testing.assert_array_equal(labels.labels, predicted)
