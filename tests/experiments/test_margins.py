"""Over five seeds the demo shows what the paper claims: adaptation pays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ucds.data.ground_truth import read_ground_truth
from ucds.demo.digits import write_digits
from ucds.demo.story import SETTINGS, TARGET, demo_task, open_digits
from ucds.experiments.methods import run_methods
from ucds.experiments.pipeline import Setting
from ucds.math.metrics import clustering_accuracy


@pytest.mark.slow
def test_pcd_is_above_source_only_and_pre_trained_only(tmp_path: Path) -> None:
    write_digits(tmp_path / "digits")
    data = open_digits(tmp_path)
    truth = read_ground_truth(data.samples)
    assert truth is not None
    classes = truth.classes[data.samples.domain == data.samples.domain_names.index(TARGET)]
    found: dict[str, list[float]] = {"po": [], "so": [], "pcd": []}
    for seed in range(5):
        setting = Setting(SETTINGS, seed, accelerator="cpu", cache=tmp_path / "cache")
        for outcome in run_methods(demo_task(data), setting, tuple(found)):
            found[outcome.method].append(100 * clustering_accuracy(outcome.labels, classes))
    mean = {method: np.mean(values) for method, values in found.items()}
    assert mean["pcd"] >= mean["so"] + 5, mean
    assert mean["pcd"] >= mean["po"] + 20, mean
