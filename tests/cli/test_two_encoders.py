"""Tests of ``--backbone a,b`` on the command line: a provider and a client with two encoders each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_kit import read_rows, run_command, run_successfully
from safetensors.torch import save_file

from ucds.backbones import build_backbone
from ucds.labels.cluster_labels import ClusterLabels
from ucds.training.model_file import load_model

EDGES, SMALL = "ucds/oriented_edges", "test_resnet"
BOTH = ("--backbone", f"{EDGES},{SMALL}", "--image-size", 32)
SHORT = ("--set", "starts=1", "--accelerator", "cpu", "--clusters", 3)


def test_both_sides_learn_with_two_encoders(pictures: Path, tmp_path: Path) -> None:
    source, target, cache = tmp_path / "source", tmp_path / "target", ("--cache", tmp_path / "cache")
    none = (*BOTH, "--weights", "none", *SHORT, *cache)
    told = run_successfully("train-source", pictures / "source", "--out", source, *none).err
    assert "weights of the encoders in the vote: " in told
    assert f" for {EDGES}, " in told
    card = load_model(source).card
    assert (card.backbone.name, card.backbone.width) == (f"{EDGES},{SMALL}", 128 + 96)
    labels = tmp_path / "labels.json"
    run_successfully("label", source, pictures / "target", "--out", labels, *cache)
    assert set(ClusterLabels.load(labels).labels) <= set(range(3))

    weights = tmp_path / "small.safetensors"
    trained = build_backbone(SMALL, weights="none", seed=3).module.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in trained.items()}, weights)
    mine = (*BOTH, "--weights", f"none,{weights}", *SHORT, *cache)
    run_successfully("train-target", pictures / "target", "--labels", labels, "--out", target, *mine)
    stability = json.loads((target / "stability.json").read_text())
    assert sum(stability["encoder_weights"]) == pytest.approx(1)
    stored = load_model(target, role="target").model.encoder.backbone.get_submodule("encoders.1").state_dict()
    assert all(torch.equal(stored[name], tensor) for name, tensor in trained.items())
    run_successfully("predict", target, pictures / "target", "--out", tmp_path / "clusters.csv", *cache)
    rows = read_rows(tmp_path / "clusters.csv")
    assert len(rows) == 24
    assert {int(row["cluster"]) for row in rows} <= set(range(3))


@pytest.mark.parametrize(
    ("backbone", "weights", "message"),
    [
        (f"{SMALL},{SMALL}", "none", "twice"),
        (f"{SMALL},{EDGES}", "one.safetensors", "give one file for each encoder"),
        (f"{SMALL},resnet19", "none", "no backbone is named 'resnet19'"),
    ],
)
def test_what_cannot_be_joined_is_one_line(
    backbone: str, weights: str, message: str, pictures: Path, tmp_path: Path
) -> None:
    options = ("--backbone", backbone, "--weights", weights, "--out", tmp_path / "run", *SHORT)
    done = run_command("train-target", pictures / "target", *options)
    assert done.status == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
