"""Tests of `train-target --constraints`: corrections of a report are read, met by the model, or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.target.corrections import Corrections

pytestmark = pytest.mark.filterwarnings("ignore:(stage .*|.*) (empty|collapsed):ucds.errors.UcdsWarning")

CPU = ucds.RunOptions(accelerator="cpu")
SETTINGS = ucds.ConsensusSettings(starts=1, bottleneck_width=8)


@pytest.fixture
def vectors(tmp_path: Path, blobs: Callable[..., Any]) -> Path:
    """Five groups of 24 samples; sample i is of group i % 5."""
    np.save(tmp_path / "x.npy", blobs({"t": 120}, n_clusters=5)["t"])
    return tmp_path / "x.npy"


def write(path: Path, together: Any = (), apart: Any = (), **more: Any) -> Path:
    pairs = [[{"one": one, "other": other} for one, other in pairs] for pairs in (together, apart)]
    content = {"format": "ucds-corrections/1", "model": "0" * 12, "together": pairs[0], "apart": pairs[1]}
    path.write_text(json.dumps(content | more))
    return path


def test_the_model_predicts_what_was_corrected(
    tmp_path: Path, blobs: Callable[..., Any], run: Callable[..., int]
) -> None:
    vectors, groups = tmp_path / "six.npy", np.arange(180) % 6
    np.save(vectors, blobs({"t": 180}, n_clusters=6, width=12)["t"])
    plain = ucds.train_target(vectors, tmp_path / "plain", n_clusters=5, settings=SETTINGS, options=CPU)
    before = ucds.load(plain.folder, accelerator="cpu").predict(vectors)
    # Five clusters for six groups: two groups are one cluster. They are to be two, and two others one.
    homes = [int(np.bincount(before[groups == group]).argmax()) for group in range(6)]
    twin = next(group for group in range(6) if homes[group] in homes[:group])
    first = homes.index(homes[twin])
    one, other, *rest = (group for group in range(6) if group not in (first, twin))
    few = {group: [str(i) for i in np.flatnonzero(groups == group)[:3]] for group in range(6)}
    file = write(tmp_path / "c.json", [(few[one], few[other])], [(few[first], few[twin])])
    settings = [text for name in ("starts=1", "bottleneck_width=8") for text in ("--set", name)]
    command = ("train-target", vectors, "--clusters", 5, "--out", tmp_path / "mine", "--no-report", *settings)
    assert run(*command, "--accelerator", "cpu", "--constraints", file) == 0
    after = ucds.load(tmp_path / "mine", accelerator="cpu").predict(vectors)
    # What is wanted: five clusters, each of one group, but for the two that are one.
    wanted = np.where(groups == other, one, groups)
    assert ucds.clustering_accuracy(after, wanted) > 0.97 > ucds.clustering_accuracy(before, wanted)
    for group in rest:
        assert (after[groups == group] == before[groups == group]).mean() > 0.9
    assert json.loads((tmp_path / "mine" / "run.json").read_text())["corrections"]


def test_a_correction_that_needs_another_cluster_is_named(vectors: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "c.json", apart=[(["0"], ["5"])])
    with pytest.warns(ucds.UcdsWarning, match="1 of 1 corrections cannot be met: .* need more --clusters"):
        ucds.train_target(
            vectors, tmp_path / "run", n_clusters=5, constraints=file, settings=SETTINGS, options=CPU
        )


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"format": "ucds-names/1"}, "is not a usable file of corrections: format"),
        ({"together": [([], ["1"])]}, "is not a usable file of corrections: together.0.one"),
        ({"apart": [(["x"], ["y"])]}, "none of the corrections is about these samples"),
        ({}, "none of the corrections is about these samples"),
    ],
)
def test_what_corrects_nothing_here_is_refused(
    vectors: Path, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    file = write(tmp_path / "c.json", **more)
    with pytest.raises(ucds.UserError, match=problem):
        ucds.train_target(vectors, tmp_path / "run", n_clusters=5, constraints=file, options=CPU)
    assert not (tmp_path / "run").exists()


def test_corrections_are_for_the_method_that_honours_them(vectors: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "c.json", together=[(["0"], ["1"])])
    with pytest.raises(ucds.InputError, match="corrections are for the method consensus"):
        ucds.train_target(
            vectors,
            tmp_path / "run",
            n_clusters=5,
            constraints=file,
            settings=ucds.PCDSettings(bottleneck_width=8),
            options=CPU,
        )
    assert not (tmp_path / "run").exists()


def test_samples_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / "c.json", together=[(["a", "gone"], ["b"]), (["gone"], ["b"])])
    with pytest.warns(ucds.UcdsWarning, match="1 of 2 corrections are about samples that are not here"):
        found = Corrections.load(file).among(("b", "a"))
    assert [[group.tolist() for group in pair] for pair in found.together] == [[[1], [0]]]
