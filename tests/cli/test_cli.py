"""Tests of the command line: the whole story once, resumed and stopped runs, and sorted images."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_kit import (
    EDGES,
    SHAPES,
    SHORT_SOURCE,
    SHORT_TARGET,
    draw,
    read_rows,
    run_command,
    run_successfully,
    tree,
    write_labels,
)

from ucds.math.metrics import score
from ucds.training.session import Session


def test_the_whole_story_on_pictures(
    story: tuple[Path, dict[str, Any]], pictures: Path, tmp_path: Path
) -> None:
    """Only the label file goes from one side to the other. (tests/architecture runs each side by itself.)"""
    folder, target = story[0], pictures / "target"
    answers = json.loads((folder / "labels.json").read_text())
    ids = sorted(f"{shape}/{i}.png" for shape in SHAPES for i in range(8))
    assert answers["ids"] == ids
    assert answers["provider"] == "source"
    assert answers["n_clusters"] == 3
    assert {type(label) for label in answers["labels"]} == {int}
    assert set(answers["labels"]) <= {0, 1, 2}

    sort = ("--sort-into", tmp_path / "sorted")
    run_successfully("predict", folder / "target", target, "--out", tmp_path / "p.csv", *sort)
    rows = read_rows(tmp_path / "p.csv")
    assert [row["sample"] for row in rows] == ids
    assert all(1 / 3 - 1e-4 <= float(row["confidence"]) <= 1 for row in rows)
    copies = {path.relative_to(tmp_path / "sorted").as_posix(): path for path in tmp_path.glob("sorted/*/*")}
    wanted = {f"cluster_{row['cluster']}/{row['sample'].replace('/', '__')}": row["sample"] for row in rows}
    assert copies.keys() == wanted.keys()
    assert all(copies[name].read_bytes() == (target / wanted[name]).read_bytes() for name in wanted)
    assert sorted(p.name for p in (tmp_path / "sorted").iterdir()) == [f"cluster_{k}" for k in range(3)]

    done = run_successfully("evaluate", folder / "target", target)
    report = json.loads((folder / "target" / "evaluation.json").read_text())
    classes = [SHAPES.index(row["sample"].split("/")[0]) for row in rows]
    expected = score([int(row["cluster"]) for row in rows], classes)
    assert report["overall"] == {"accuracy": expected.accuracy, "nmi": expected.nmi, "ari": expected.ari}
    assert (report["samples"], report["n_clusters"], report["n_classes"]) == (24, 3, 3)
    assert f"accuracy {100 * expected.accuracy:5.1f}" in done.out
    assert not list(folder.rglob(".*partial*"))
    assert not list(folder.rglob("checkpoint.pt"))


def test_a_run_that_differs_is_not_resumed(vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("train-source", vectors / "source.npz", "--clusters", 4, "--out", out, "--resume")
    other = ("train-source", vectors / "three.npz", *command[2:])
    run_successfully(*command, *SHORT_SOURCE)
    (out / "model.safetensors").unlink()  # as if it had not come so far
    before = tree(out)
    for arguments, words in (
        ((*command, *SHORT_SOURCE, "--clusters", 5), "its clusters is 4, not 5"),
        ((*command, *SHORT_SOURCE, "--seed", 1), "its seed is 0, not 1"),
        ((*command, *SHORT_SOURCE[:2]), "its settings.source_epochs is 2, not 100"),
        (command, "its method is 'pcd', not 'consensus'"),
        ((*command, *SHORT_SOURCE, "--domains", "a"), "its data is"),
        ((*other, *SHORT_SOURCE), "its data is"),
    ):
        found = run_command(*arguments)
        assert found.status == 2
        assert f"holds another run: {words}" in found.err
        assert tree(out) == before
    run_successfully(*command, *SHORT_SOURCE)


def test_a_finished_run_is_left_as_it_is(runs: Path, vectors: Path) -> None:
    before = tree(runs / "source")
    data = ("train-source", vectors / "source.npz", "--clusters", 4)
    command = (*data, "--out", runs / "source", *SHORT_SOURCE)
    assert "is not empty" in run_command(*command).err
    found = run_successfully(*command, "--resume")
    assert "is finished already" in found.err
    assert tree(runs / "source") == before


def test_sorting_refuses_a_folder_in_use_before_anything_is_written(pictures: Path, tmp_path: Path) -> None:
    target, run = pictures / "target", tmp_path / "run"
    brief = ("--clusters", 3, "--set", "starts=1", "--no-report")
    run_successfully("train-target", target, "--out", run, *EDGES, *brief)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    predict = ("predict", run, target, "--out", tmp_path / "p.csv", "--sort-into")
    for folder in (tmp_path / "used", tmp_path / "used" / "file"):
        before = tree(tmp_path)
        found = run_command(*predict, folder)
        assert (found.status, found.err.count("\n")) == (2, 1)  # before any work
        assert "is not an empty folder: choose another --sort-into" in found.err
        assert tree(tmp_path) == before
    (tmp_path / "empty").mkdir()
    run_successfully(*predict, tmp_path / "empty")
    assert len(list(tmp_path.glob("empty/*/*.png"))) == 24


def test_sorting_keeps_files_apart_whatever_their_names(tmp_path: Path) -> None:
    images = tmp_path / "images"
    names = [b"a_/b.png", b"a/_b.png", b"a/b.png", b"a__b.png", b"a/__b.png", b"a__/b.png", b"\xff.png"]
    for seed, name in enumerate(names):
        draw(images / os.fsdecode(name), "disc", seed, ("white", "black"))
    run = tmp_path / "run"
    write_labels(tmp_path / "labels.json", ["a/b.png"], [0])
    labels = ("--labels", tmp_path / "labels.json")
    run_successfully("train-target", images, *labels, "--out", run, *EDGES, *SHORT_TARGET)
    sort = ("--sort-into", tmp_path / "sorted")
    run_successfully("predict", run, images, "--out", tmp_path / "p.csv", *sort)
    contents = {path.read_bytes() for path in tmp_path.glob("sorted/*/*")}
    assert contents == {(images / os.fsdecode(name)).read_bytes() for name in names}


def signalled(monkeypatch: pytest.MonkeyPatch, number: signal.Signals, times: int, after: int) -> None:
    """Let the process receive a signal when the log has been written ``after`` times."""
    write, count = Session.write, 0

    def write_and_signal(self: Session, *arguments: Any) -> None:
        nonlocal count
        write(self, *arguments)
        count += 1
        if count == after:
            for _ in range(times):
                signal.raise_signal(number)

    monkeypatch.setattr(Session, "write", write_and_signal)


@pytest.mark.parametrize(("number", "side"), [(signal.SIGINT, "source"), (signal.SIGTERM, "target")])
def test_a_signal_stops_with_saved_work_and_resume_finishes(
    number: signal.Signals,
    side: str,
    vectors: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = ("--clusters", 4) if side == "source" else ("--labels", vectors / "labels.json")
    data = vectors / ("source.npz" if side == "source" else "target.npy")
    names = ("source",) if side == "source" else ("clustering", "refinement")
    settings = [f"--set={name}_epochs=20" for name in names]
    command = (f"train-{side}", data, *more, *settings, "--method", "pcd", "--out")
    monkeypatch.setenv("UCDS_CHECKPOINT_SECONDS", "1e9")
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:
        signalled(patch, number, 1, after=4)
        found = run_command(*command, tmp_path / "stopped")
    assert found.status == 130
    assert found.err.splitlines()[-1] == "stopped, with all work saved: go on with --resume"
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (tmp_path / "stopped" / "checkpoint.pt").exists()
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    run_successfully(*command, tmp_path / "stopped", "--resume")
    run_successfully(*command, tmp_path / "whole")
    stopped, whole = ((tmp_path / out / "log.jsonl").read_text() for out in ("stopped", "whole"))
    assert stopped == whole
    assert not (tmp_path / "stopped" / "checkpoint.pt").exists()


def test_a_second_signal_stops_at_once_without_a_traceback(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled(monkeypatch, signal.SIGINT, 2, after=2)
    out = tmp_path / "run"
    data = vectors / "source.npz"
    found = run_command("train-source", data, "--clusters", 4, "--method", "pcd", "--out", out)
    assert found.status == 130
    assert "Traceback" not in found.err


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
    assert errors.splitlines()[-1] == "stopped, with all work saved: go on with --resume"
    assert (out / "checkpoint.pt").exists()
