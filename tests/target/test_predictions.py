"""Tests of the table of predictions."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ucds.errors import InputError
from ucds.target.predictions import Predictions

CLUSTERS, CONFIDENCE = np.array([1, 0, 11]), np.array([0.5, 0.25, 1.0], np.float32)
NAMES = {0: "=HYPERLINK()", 1: 'cat & "dog"'}
FOUND = Predictions(("=a.png", "b/ü c.png", "d.png"), CLUSTERS, CONFIDENCE, NAMES, 12)


def test_a_table_has_one_row_a_sample_and_no_formula(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["sample", "cluster", "confidence", "name"],
        ["'=a.png", "1", "0.5000", 'cat & "dog"'],
        ["b/ü c.png", "0", "0.2500", "'=HYPERLINK()"],
        ["d.png", "11", "1.0000", ""],
    ]
    replace(FOUND, names={}).save(tmp_path / "bare.csv")
    assert (tmp_path / "bare.csv").read_text().splitlines()[0] == "sample,cluster,confidence"


def test_samples_without_a_cluster_have_the_number_minus_one(tmp_path: Path) -> None:
    doubtful = replace(FOUND, clusters=np.array([1, -1, 0]))
    assert doubtful.unsorted == 1
    doubtful.save(tmp_path / "p.csv")
    assert "b/ü c.png,-1,0.2500,\n" in (tmp_path / "p.csv").read_text()


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.csv"):
        FOUND.save(tmp_path / "p.parquet")
    assert not list(tmp_path.iterdir())
