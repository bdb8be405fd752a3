"""Tests of `ucds.source.private`: a source model with differential privacy, from samples to its file."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

import ucds
from ucds import InputError, RunOptions, SourceClustering
from ucds.config import ConsensusSettings
from ucds.math.privacy import PrivacyClaim, noise_scale
from ucds.source.private import GaussianNoise
from ucds.training.model_file import load_model

pytest.importorskip("opendp")
K, WIDTH = 3, 6


def vectors_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.tile(np.arange(K), count)
    return (np.eye(WIDTH)[truth] + 0.1 * rng.standard_normal((K * count, WIDTH))).astype(np.float32), truth


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, np.ndarray]:
    vectors, truth = vectors_of(400)
    np.savez(tmp_path / "data.npz", a=vectors[::2], b=vectors[1::2])
    return tmp_path / "data.npz", np.concatenate([truth[::2], truth[1::2]])


def test_a_private_model_finds_the_groups_and_carries_its_claim(
    tmp_path: Path, data: tuple[Path, np.ndarray]
) -> None:
    path, truth = data
    settings = ConsensusSettings(dp_epsilon=8.0)
    ucds.train_source(path, tmp_path / "run", K, settings=settings, options=RunOptions())
    stored = load_model(tmp_path / "run", role="source")
    assert stored.card.privacy == PrivacyClaim(8.0, 1e-5, "image")
    probabilities = ucds.load(tmp_path / "run", compute=ucds.Compute("cpu")).predict_proba(
        np.concatenate(list(np.load(path).values()))
    )
    assert adjusted_rand_score(truth, probabilities.argmax(1)) > 0.95
    # Nothing in the file but what was paid for: the variances of the samples are not.
    norm = stored.model.encoder.bottleneck.norm  # type: ignore[union-attr]
    torch.testing.assert_close(norm.running_var, torch.ones(256))


def test_the_noise_does_not_come_from_the_seed() -> None:
    vectors, _ = vectors_of(50)
    first, second = (
        SourceClustering(K, settings={"dp_epsilon": 1.0}, random_state=0, accelerator="cpu").fit(vectors)
        for _ in range(2)
    )
    assert not np.array_equal(first.prototypes_, second.prototypes_)


def test_noise_has_its_scale_and_is_accounted_for() -> None:
    noise = GaussianNoise()
    found = noise(np.full(4000, 7.0), noise_scale(0.02)) - 7
    assert found.std() == pytest.approx(5.0, rel=0.06)
    assert abs(found.mean()) < 0.4
    assert noise.spent == pytest.approx(0.02)


def test_persons_are_protected_where_groups_are_given(tmp_path: Path, data: tuple[Path, np.ndarray]) -> None:
    path, truth = data
    with (tmp_path / "g.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "group"), *((i, i % 300) for i in range(len(truth)))])
    settings = ConsensusSettings(dp_epsilon=8.0, dp_delta=1e-3)
    options = RunOptions()
    run = tmp_path / "run"
    ucds.train_source(path, run, K, settings=settings, options=options, groups=tmp_path / "g.csv")
    card = load_model(run).card
    assert card.privacy == PrivacyClaim(8.0, 1e-3, "person")
    assert json.loads(json.dumps(asdict(card)))["privacy"]["unit"] == "person"


def test_what_does_not_fit_is_refused(tmp_path: Path, data: tuple[Path, np.ndarray]) -> None:
    path, _ = data
    (tmp_path / "g.csv").write_text("id,group\n0,Ann\n")
    with pytest.raises(InputError, match="give --dp-epsilon as well"):
        ucds.train_source(path, tmp_path / "a", K, groups=tmp_path / "g.csv")
    settings = ConsensusSettings(dp_epsilon=1.0, dp_delta=0.01)
    with pytest.raises(InputError, match="larger than 1 / 1,200"):
        ucds.train_source(path, tmp_path / "b", K, settings=settings)
    assert not (tmp_path / "b" / "model.safetensors").exists()
