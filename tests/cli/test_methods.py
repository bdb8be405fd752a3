"""The recipe `ucds` on the command line, where it is the default."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

import ucds.cli
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.metrics import score
from ucds.training.model_file import load_model

N, K = 48, 4
TRUTH = np.arange(N) % K
SHORT = ("--set", "fitting_epochs=3", "--set", "space_partitions=4", "--accelerator", "cpu")


class Result(NamedTuple):
    status: int
    err: str


Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: its exit status and what it said."""

    def run(*arguments: str | Path | int) -> Result:
        monkeypatch.setattr(sys, "argv", ["ucds", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            ucds.cli.main()
        return Result(int(exit_.value.code or 0), capsys.readouterr().err)

    return run


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``source.npz`` of two domains, ``target.npy``, and label files of four and of two clusters."""
    root, rng = tmp_path_factory.mktemp("vectors"), np.random.default_rng(0)
    shifts = 0.3 * np.eye(8)[-3:]
    blobs = [
        (np.eye(8)[TRUTH] + shift + 0.06 * rng.normal(size=(N, 8))).astype(np.float32) for shift in shifts
    ]
    np.savez(root / "source.npz", east=blobs[0], west=blobs[1])
    np.save(root / "target.npy", blobs[2])
    ids = tuple(str(i) for i in range(N))
    ClusterLabels(ids, (TRUTH + 1) % K, K, "p").save(root / "labels.json")
    ClusterLabels(ids, TRUTH // 2, 2, "p").save(root / "two.json")
    return root


def read_csv(path: Path) -> np.ndarray:
    with path.open(newline="") as file:
        return np.array([int(row["cluster"]) for row in csv.DictReader(file)])


def settings_of(run: Path) -> dict[str, object]:
    settings: dict[str, object] = json.loads((run / "run.json").read_text())["config"]
    return settings


def found_by(run: Path, data: Path, command: Command) -> np.ndarray:
    done = command("predict", run, data, "--out", run / "clusters.csv")
    assert done.status == 0, done.err
    return read_csv(run / "clusters.csv")


def assert_refused(found: Result, words: str, out: Path) -> None:
    assert found.status == 2
    (line,) = found.err.splitlines()
    assert words in line
    assert not out.exists()


def test_the_whole_way_is_the_recipe_by_default(vectors: Path, tmp_path: Path, command: Command) -> None:
    source, target, labels = tmp_path / "source", tmp_path / "target", tmp_path / "labels.json"
    done = command("train-source", vectors / "source.npz", "--clusters", K, "--out", source, *SHORT)
    assert done.status == 0, done.err
    card = load_model(source).card
    assert (card.stages, card.tune, card.unit_features) == (("cluster-domains",), "head", True)
    assert card.domains == ("east", "west")
    assert settings_of(source)["recipe"] == "ucds"
    done = command("label", source, vectors / "target.npy", "--out", labels)
    assert done.status == 0, done.err
    assert score(ClusterLabels.load(labels).labels, TRUTH).accuracy == 1
    done = command("train-target", vectors / "target.npy", "--labels", labels, "--out", target, *SHORT)
    assert done.status == 0, done.err
    card = load_model(target, role="target").card
    assert (card.stages, card.tune) == (("agree", "fit-target"), "head")
    told = json.loads((target / "transfer.json").read_text())
    assert told["use"] == "consensus"
    assert told["sentence"] in done.err.splitlines()
    assert "%" in told["sentence"]
    assert score(found_by(target, vectors / "target.npy", command), TRUTH).accuracy == 1


def test_a_target_is_clustered_alone(vectors: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "run"
    done = command("train-target", vectors / "target.npy", "--clusters", K, "--out", out, *SHORT)
    assert done.status == 0, done.err
    assert not (out / "transfer.json").exists()
    assert "provider" not in done.err
    assert score(found_by(out, vectors / "target.npy", command), TRUTH).accuracy == 1
    description = json.loads((out / "run.json").read_text())
    assert (description["clusters"], description["labels"]) == (K, None)


def test_labels_of_another_number_of_clusters(vectors: Path, tmp_path: Path, command: Command) -> None:
    two = ("train-target", vectors / "target.npy", "--labels", vectors / "two.json", *SHORT, "--out")
    done = command(*two, tmp_path / "four", "--clusters", K)
    assert done.status == 0, done.err
    assert load_model(tmp_path / "four").card.n_clusters == K
    assert score(found_by(tmp_path / "four", vectors / "target.npy", command), TRUTH).accuracy == 1
    done = command(*two, tmp_path / "two")
    assert done.status == 0, done.err
    assert load_model(tmp_path / "two").card.n_clusters == 2
    refused = command(*two, tmp_path / "pcd", "--clusters", K, "--recipe", "pcd")
    assert_refused(refused, "the labels have 2 clusters, but the model has 4", tmp_path / "pcd")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --labels, a file, or --url, a service; or --clusters, to cluster alone"),
        (("--clusters", N + 1), f"{N} samples cannot form {N + 1} clusters"),
        (("--clusters", K, "--set", "spaces=['far']"), "bad configuration: spaces"),
        (("--clusters", K, "--set", "transfer=maybe"), "bad configuration: transfer"),
        (("--clusters", K, "--set", "neighbours=0"), "bad configuration: neighbours"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    arguments: Sequence[object], words: str, vectors: Path, tmp_path: Path, command: Command
) -> None:
    found = command("train-target", vectors / "target.npy", "--out", tmp_path / "run", *arguments)
    assert_refused(found, words, tmp_path / "run")


def test_too_many_clusters_are_refused_on_the_sources_side(
    vectors: Path, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "run"
    found = command("train-source", vectors / "source.npz", "--clusters", 2 * N + 1, "--out", out)
    assert_refused(found, f"{2 * N} samples cannot form {2 * N + 1} clusters", out)


@pytest.mark.parametrize(
    ("options", "recipe", "tune"),
    [
        ((), "ucds", "head"),
        (("--tune", "full"), "ucds", "full"),
        (("--recipe", "pcd"), "pcd", "full"),
        (("--recipe", "pcd", "--tune", "head"), "pcd", "head"),
        (("--set", "recipe=pcd"), "pcd", "full"),
        (("--set", "recipe=pcd", "--recipe", "ucds"), "ucds", "head"),
    ],
)
def test_recipe_and_tune_are_what_is_said(
    options: Sequence[str], recipe: str, tune: str, vectors: Path, tmp_path: Path, command: Command
) -> None:
    epochs = ("--set", "clustering_epochs=1", "--set", "refinement_epochs=1")
    labels = ("--labels", vectors / "labels.json", "--out", tmp_path / "run")
    done = command("train-target", vectors / "target.npy", *labels, *SHORT, *epochs, *options)
    assert done.status == 0, done.err
    settings = settings_of(tmp_path / "run")
    assert (settings["recipe"], settings["tune"]) == (recipe, tune)
    stages = ("agree", "fit-target") if recipe == "ucds" else ("cluster-target", "refine-target")
    assert load_model(tmp_path / "run").card.stages == stages


def test_the_setting_that_lays_down_the_transfer_is_told(
    vectors: Path, tmp_path: Path, command: Command
) -> None:
    labels = ("--labels", vectors / "labels.json", "--out", tmp_path / "run")
    done = command("train-target", vectors / "target.npy", *labels, *SHORT, "--set", "transfer=own")
    assert done.status == 0, done.err
    assert "were set aside, because the setting 'transfer' says so" in done.err


def test_predictions_on_training_images_are_those_stored(tmp_path: Path, command: Command) -> None:
    rng, colours = np.random.default_rng(0), np.array([[250, 20, 20], [20, 250, 20], [20, 20, 250]])
    images = tmp_path / "images"
    images.mkdir()
    for i in range(18):
        pixels = np.zeros((40, 40, 3), np.uint8)
        slope = (0, 1, 3)[i % 3]  # lines of three directions
        rows, columns = np.indices((40, 40))
        pixels[(rows + slope * columns + int(rng.integers(8))) % 8 < 4] = colours[int(rng.integers(3))]
        Image.fromarray(pixels).save(images / f"{i:02}.png")
    edges = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--cache", tmp_path / "cache")
    done = command("train-target", images, "--clusters", 3, "--out", tmp_path / "run", *edges, *SHORT)
    assert done.status == 0, done.err
    stored = np.load(tmp_path / "run" / "evaluations.npz")
    assert stored["ids"].tolist() == sorted(path.name for path in images.iterdir())
    found = found_by(tmp_path / "run", images, command)
    np.testing.assert_array_equal(found, stored["fit-target/labels"][-1])
    assert score(found, np.arange(18) % 3).accuracy == 1


def test_a_killed_process_is_taken_up_again(vectors: Path, tmp_path: Path, command: Command) -> None:
    """SIGKILL while the model is fitted; the resumed run ends with the same bits."""

    def arguments(out: str) -> list[str]:
        settings = ("--set", "fitting_epochs=40", "--set", "space_partitions=2", "--set", "batch_size=8")
        more = ("--labels", str(vectors / "labels.json"), "--out", str(tmp_path / out))
        run = ("train-target", str(vectors / "target.npy"), *more, *settings)
        return [*run, "--accelerator", "cpu"]

    process = subprocess.Popen(
        [sys.executable, "-m", "ucds", *arguments("killed"), "--checkpoint-seconds", "0"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )
    checkpoint, seen, last = tmp_path / "killed" / "checkpoint.pt", 0, 0
    while process.poll() is None and seen < 8:
        now = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        seen, last = seen + (now != last), now
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    for run in (arguments("whole"), [*arguments("killed"), "--resume"]):
        done = command(*run)
        assert done.status == 0, done.err
    one, other = (load_file(tmp_path / run / "model.safetensors") for run in ("whole", "killed"))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    for name in ("log.jsonl", "transfer.json"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "killed" / name).read_text()
    assert "is finished already" in command(*arguments("killed"), "--resume").err
