"""Tests of the command line: both methods from end to end, resumed and stopped runs, and sorted images."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_kit import EDGES, SHAPES, read_rows, run_command, run_successfully, tree

from ucds.training.model_file import load_model
from ucds.training.progress import Lines

BRIEF = ("--set", "starts=1", "--no-report")


def test_the_whole_story_on_pictures(story: tuple[Path, dict[str, Any]]) -> None:
    """Only the label file goes from one side to the other. (tests/architecture runs each side by itself.)"""
    folder, _ = story
    answers = json.loads((folder / "labels.json").read_text())
    ids = sorted(f"{shape}/{i}.png" for shape in SHAPES for i in range(8))
    assert answers["ids"] == ids
    assert answers["provider"] == "source"
    assert answers["n_clusters"] == 3
    assert {type(label) for label in answers["labels"]} == {int}
    assert set(answers["labels"]) <= {0, 1, 2}

    rows = read_rows(folder / "p.csv")
    assert [row["sample"] for row in rows] == ids
    assert all(1 / 3 - 1e-4 <= float(row["confidence"]) <= 1 for row in rows)
    assert load_model(folder / "source").card.stages == ("cluster-domains",)
    assert load_model(folder / "target").card.stages == ("agree", "fit-target")
    assert not list(folder.rglob(".*partial*"))
    assert not list(folder.rglob("checkpoint.pt"))


def test_a_finished_run_is_left_as_it_is(runs: Path, vectors: Path) -> None:
    before = tree(runs / "source")
    data = ("train-source", vectors / "source.npz", "--clusters", 4)
    command = (*data, "--out", runs / "source", "--set", "starts=1")
    assert "is not empty" in run_command(*command).err
    found = run_successfully(*command, "--resume")
    assert "is finished already" in found.err
    assert tree(runs / "source") == before


def test_sorting_keeps_files_apart_whatever_their_names(
    tmp_path: Path, write_images: Callable[..., list[Path]]
) -> None:
    images = tmp_path / "images"
    names = [b"a_/b.png", b"a/_b.png", b"a/b.png", b"a__b.png", b"a/__b.png", b"a__/b.png", b"\xff.png"]
    paths = write_images(images, map(os.fsdecode, names))
    run = tmp_path / "run"
    run_successfully("train-target", images, "--clusters", 2, "--out", run, *EDGES, *BRIEF)
    sort = ("--sort-into", tmp_path / "sorted")
    run_successfully("predict", run, images, "--out", tmp_path / "p.csv", *sort)
    contents = {path.read_bytes() for path in tmp_path.glob("sorted/*/*")}
    assert contents == {path.read_bytes() for path in paths}


def test_features_tell_how_many_images_cannot_be_used_and_what_was_made_before(
    write_images: Callable[..., list[Path]], tmp_path: Path
) -> None:
    write_images(tmp_path / "images", ["a.png", "b.png"])
    (tmp_path / "images" / "torn.png").write_bytes(b"no image")
    command = ("features", tmp_path / "images", "--out", tmp_path / "features", *EDGES[:4])
    told = f"features of 2 images written to {tmp_path / 'features'} in 1 parts"
    assert f"{told}; 1 cannot be used, see skipped.csv\n" in run_successfully(*command).err
    assert f"{told}, 1 of them finished before; 1 cannot" in run_successfully(*command).err


def test_a_signal_stops_with_saved_work_and_resume_finishes(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train-target", vectors / "target.npy", "--clusters", 4, *BRIEF, "--out")

    stopped, whole = (tmp_path / name / "run" for name in ("stopped", "whole"))

    def stop(*given: Any, **named: Any) -> None:
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # the run listens
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "show", stop)
        found = run_command(*command, stopped)
    assert found.status == 130
    assert (
        found.err.splitlines()[-1] == "stopped; what is finished is saved: run the same command with --resume"
    )
    assert not (stopped / "model.safetensors").exists()
    run_successfully(*command, stopped, "--resume")
    run_successfully(*command, whole)
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.torch
@pytest.mark.slow
def test_a_signal_from_outside_stops_a_real_process(vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data, epochs = str(vectors / "source.npz"), ("--set", "source_epochs=100000")
    command = ("train-source", data, "--clusters", "4", "--method", "pcd", "--out", str(out), *epochs)
    with subprocess.Popen(
        [sys.executable, "-m", "ucds", *command],
        env=os.environ | {"UCDS_CHECKPOINT_SECONDS": "0"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / "checkpoint.pt").exists():  # the training has begun
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; what is finished is saved: run the same command with --resume"
    assert (out / "checkpoint.pt").exists()
