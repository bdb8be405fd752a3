"""Tests of the words that users choose between: Python takes any word, and a wrong one is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ucds
from ucds.errors import InputError
from ucds.training.options import BulkOptions, Compute

WRONG: Any = "other"
VECTORS = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda place: Compute(WRONG), "`accelerator` must be one of auto, cpu, cuda, mps, not 'other'"),
        (lambda place: Compute(precision=WRONG), "`precision` must be one of 32-true, bf16-mixed"),
        (lambda place: BulkOptions(WRONG), "`engine` must be one of plain, ray"),
        (lambda place: ucds.export(place, form=WRONG), "`form` must be one of onnx, sklearn"),
        (
            lambda place: ucds.predict(place, VECTORS, sort_into=place / "sorted", sort_how=WRONG),
            "`sort_how` must be one of copy, link, not 'other'",
        ),
        (
            lambda place: ucds.TargetClustering(2, settings=WRONG).fit(VECTORS),
            "settings are given by name, as a mapping, not as str",
        ),
    ],
)
def test_another_word_is_refused(use: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        use(tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_cluster_is_refused_in_python_as_by_the_command(tmp_path: Path) -> None:
    for train in (ucds.train_source, ucds.train_target):
        with pytest.raises(InputError, match="the number of clusters must be at least 2"):
            train(VECTORS, tmp_path / "run", n_clusters=1)
    assert not list(tmp_path.iterdir())
