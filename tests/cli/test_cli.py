"""Tests of the command line: the whole story once, and every mistake a user can make in one line."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image, ImageDraw

import ucds.cli
from ucds.math.metrics import score
from ucds.training.session import Session

SHORT = (
    *("--recipe", "pcd"),
    *("--set", "source_epochs=2", "--set", "clustering_epochs=2", "--set", "refinement_epochs=2"),
)
EDGES = ("--backbone", "ucds/oriented_edges", "--weights", "none", "--tune", "head")
SHAPES = ("bar", "cross", "disc")


class Result(NamedTuple):
    status: int
    out: str
    err: str


Command = Callable[..., Result]


def in_subprocess(*arguments: str | Path, env: dict[str, str] | None = None) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "ucds", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def ucds_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: its exit status and what it printed."""

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["ucds", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            ucds.cli.main()
        printed = capsys.readouterr()
        return Result(int(exit_.value.code or 0), printed.out, printed.err)

    return run


def draw(path: Path, shape: str, seed: int, colours: tuple[str, str]) -> None:
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (40, 40), colours[0])
    pen = ImageDraw.Draw(image)
    x, y = (int(v) for v in rng.integers(14, 26, 2))
    if shape == "disc":
        pen.ellipse((x - 10, y - 10, x + 10, y + 10), fill=colours[1])
    else:
        pen.line((x - 12, y, x + 12, y), fill=colours[1], width=4)
    if shape == "cross":
        pen.line((x, y - 12, x, y + 12), fill=colours[1], width=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def draw_domain(root: Path, colours: tuple[str, str], seed: int, count: int = 8) -> None:
    for shape in SHAPES:
        for i in range(count):
            draw(root / shape / f"{i}.png", shape, 1000 * seed + i, colours)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``source/{day,night}/<shape>/*.png`` and ``target/<shape>/*.png``."""
    root = tmp_path_factory.mktemp("pictures")
    draw_domain(root / "source" / "day", ("white", "black"), 1)
    draw_domain(root / "source" / "night", ("navy", "yellow"), 2)
    draw_domain(root / "target", ("green", "white"), 3)
    return root


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory, blobs: Callable[..., dict[str, Any]]) -> Path:
    """``source.npz`` of two domains, ``target.npy``, and label files for the target."""
    root = tmp_path_factory.mktemp("vectors")
    made = blobs({"a": 40, "b": 30, "t": 36})
    np.save(root / "target.npy", made.pop("t"))
    np.savez(root / "source.npz", **made)
    np.save(root / "wide.npy", np.zeros((9, 99), np.float32) + np.arange(9)[:, None])
    np.save(root / "two.npy", np.eye(2, 6, dtype=np.float32))
    np.savez(root / "three.npz", **{name: np.eye(6, dtype=np.float32) for name in "xyz"})
    ids = [str(i) for i in range(36)]
    write_labels(root / "labels.json", ids, (np.arange(36) % 4).tolist())
    write_labels(root / "foreign.json", [f"x{i}" for i in range(36)], [0] * 36)
    write_labels(root / "closed.json", ids, [0] * 36, scores=[0.5] * 36)
    return root


def write_labels(path: Path, ids: Sequence[str], labels: Sequence[int], **more: Any) -> None:
    content = {"format": "ucds-labels/1", "provider": "p", "n_clusters": 4, "ids": ids, "labels": labels}
    path.write_text(json.dumps(content | more))


@pytest.fixture
def runs(vectors: Path, tmp_path: Path, ucds_command: Command) -> Path:
    """A finished source run, a finished target run and an unfinished one, side by side."""
    root = tmp_path / "runs"
    done = ucds_command(
        "train-source", vectors / "source.npz", "--clusters", 4, "--out", root / "source", *SHORT
    )
    assert done.status == 0, done.err
    labels = ("--labels", vectors / "labels.json")
    done = ucds_command("train-target", vectors / "target.npy", *labels, "--out", root / "target", *SHORT)
    assert done.status == 0, done.err
    (root / "unfinished").mkdir()
    (root / "unfinished" / "run.json").write_text("{}")
    return root


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_whole_story_on_pictures(pictures: Path, tmp_path: Path, ucds_command: Command) -> None:
    """Training is done in real processes, one for each side; only the label file goes between them."""
    target, cache = pictures / "target", ("--cache", tmp_path / "cache")

    def run(command: str, *arguments: str | Path) -> Result:
        start = in_subprocess if command.startswith("train") else ucds_command
        done = start(command, *arguments, *cache)
        assert done.status == 0, done.err
        assert "Traceback" not in done.err
        return done

    source_options = ("--clusters", "3", "--out", tmp_path / "source", *EDGES, "--set", "source_epochs=8")
    run("train-source", pictures / "source", *source_options)
    run("label", tmp_path / "source", target, "--out", tmp_path / "labels.json")
    answers = json.loads((tmp_path / "labels.json").read_text())
    ids = sorted(f"{shape}/{i}.png" for shape in SHAPES for i in range(8))
    assert answers["ids"] == ids
    assert answers["provider"] == "source"
    assert answers["n_clusters"] == 3
    assert {type(label) for label in answers["labels"]} == {int}
    assert set(answers["labels"]) <= {0, 1, 2}

    labels = ("--labels", tmp_path / "labels.json")
    run("train-target", target, *labels, "--out", tmp_path / "target", *EDGES, *SHORT)
    run(
        "predict",
        tmp_path / "target",
        target,
        "--out",
        tmp_path / "p.csv",
        "--sort-into",
        tmp_path / "sorted",
    )
    rows = table(tmp_path / "p.csv")
    assert [row["sample"] for row in rows] == ids
    assert all(1 / 3 - 1e-4 <= float(row["confidence"]) <= 1 for row in rows)
    copies = {path.relative_to(tmp_path / "sorted").as_posix(): path for path in tmp_path.glob("sorted/*/*")}
    wanted = {f"cluster_{row['cluster']}/{row['sample'].replace('/', '__')}": row["sample"] for row in rows}
    assert copies.keys() == wanted.keys()
    assert all(copies[name].read_bytes() == (target / wanted[name]).read_bytes() for name in wanted)
    assert sorted(p.name for p in (tmp_path / "sorted").iterdir()) == [f"cluster_{k}" for k in range(3)]

    done = run("evaluate", tmp_path / "target", target)
    report = json.loads((tmp_path / "target" / "evaluation.json").read_text())
    classes = [SHAPES.index(row["sample"].split("/")[0]) for row in rows]
    expected = score([int(row["cluster"]) for row in rows], classes)
    assert report["overall"] == {"accuracy": expected.accuracy, "nmi": expected.nmi, "ari": expected.ari}
    assert (report["samples"], report["n_clusters"], report["n_classes"]) == (24, 3, 3)
    assert report["oracle"]["accuracy"] >= expected.accuracy
    assert f"accuracy {100 * expected.accuracy:5.1f}" in done.out
    assert f"oracle (not used): {100 * report['oracle']['accuracy']:.1f}" in done.out
    assert not list(tmp_path.rglob(".*partial*"))
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_the_same_command_gives_the_same_files(vectors: Path, tmp_path: Path, ucds_command: Command) -> None:
    for out in ("one", "two"):
        ucds_command("train-source", vectors / "source.npz", "--clusters", 4, "--out", tmp_path / out, *SHORT)
        ucds_command("label", tmp_path / out, vectors / "target.npy", "--out", tmp_path / f"{out}.json")
    one, two = (json.loads((tmp_path / f"{out}.json").read_text()) for out in ("one", "two"))
    assert one.pop("provider") == "one"
    assert two.pop("provider") == "two"
    assert one == two
    log = [(tmp_path / out / "log.jsonl").read_text() for out in ("one", "two")]
    assert log[0] == log[1] != ""


def test_domains_of_an_archive_can_be_chosen(vectors: Path, tmp_path: Path, ucds_command: Command) -> None:
    with np.load(vectors / "source.npz") as archive:
        np.savez(tmp_path / "only.npz", b=archive["b"])
    for data, out, more in (
        (vectors / "source.npz", "chosen", ("--domains", "b")),
        (tmp_path / "only.npz", "alone", ()),
    ):
        command = ("train-source", data, "--clusters", 4, "--out", tmp_path / out, *more, *SHORT)
        assert ucds_command(*command).status == 0
    logs = [(tmp_path / out / "log.jsonl").read_text() for out in ("chosen", "alone")]
    assert logs[0] == logs[1]


def mistakes(v: Path, pictures: Path, r: Path, tmp: Path) -> dict[str, tuple[list[str | Path], str]]:
    """Every mistake, as a command line and the words that must answer it."""
    new, npz, npy = tmp / "new", v / "source.npz", v / "target.npy"
    occupied = tmp / "occupied"
    occupied.mkdir()
    (occupied / "thesis.txt").write_text("years of work")
    (tmp / "empty" / "one").mkdir(parents=True)
    draw_domain(tmp / "flawed" / "good", ("white", "black"), 4, count=1)
    (tmp / "flawed" / "bad").mkdir()
    (tmp / "flawed" / "bad" / "x.png").write_bytes(b"no picture")
    (tmp / "flat").mkdir()
    draw(tmp / "flat" / "1.png", "disc", 0, ("white", "black"))
    draw(tmp / "flat" / "2.png", "bar", 1, ("white", "black"))
    (tmp / "junk.npy").write_bytes(b"junk")
    np.save(tmp / "nan.npy", np.full((9, 6), np.nan, np.float32))
    (tmp / "junk.json").write_text("junk")
    (tmp / "junk.toml").write_text("epsilon 3")
    (tmp / "typo.toml").write_text("epslion = 0.1")
    (tmp / "broken").mkdir()
    (tmp / "broken" / "model.safetensors").write_bytes(b"junk")

    def source(data: Path, *more: str | Path, clusters: str = "4", out: Path = new) -> list[str | Path]:
        return ["train-source", data, "--clusters", clusters, "--out", out, *more]

    def target(data: Path, labels: Path, *more: str | Path, out: Path = new) -> list[str | Path]:
        return ["train-target", data, "--labels", labels, "--out", out, *more]

    def predict(run: Path, data: Path, *more: str | Path, out: Path = new) -> list[str | Path]:
        return ["predict", run, data, "--out", out, *more]

    images, labels = pictures / "source", v / "labels.json"
    none = ("--weights", "none")
    return {
        "no such data": (source(tmp / "absent"), "no folder"),
        "no such vectors": (source(tmp / "absent.npz"), "There is no file"),
        "vectors are junk": (source(tmp / "junk.npy"), "not a readable .npy or .npz"),
        "vectors are not numbers": (source(tmp / "nan.npy"), "holds NaN or infinity"),
        "data is a file": (source(labels), "is a file"),
        "no images": (source(tmp / "empty", *none), "images"),
        "a domain of bad images": (
            source(tmp / "flawed", "--backbone", "ucds/oriented_edges", *none),
            "None of the 1 files of 'bad' can be used",
        ),
        "unknown domain of a folder": (source(images, "--domains", "day,noon", *none), "'noon'"),
        "unknown domain of an archive": (source(npz, "--domains", "a,c"), "no domain 'c'; it has 'a', 'b'"),
        "one cluster": (source(npz, clusters="1"), "--clusters"),
        "clusters no number": (source(npz, clusters="many"), "--clusters"),
        "clusters missing": (["train-source", npz, "--out", new], "--clusters"),
        "data missing": (["train-source", "--clusters", "4", "--out", new], "data"),
        "unknown option": (source(npz, "--epochs", "3"), "--epochs"),
        "unknown command": (["train"], "train"),
        "unknown setting": (source(npz, "--set", "epochs=3"), "unknown setting 'epochs'"),
        "setting of a wrong type": (source(npz, "--set", "batch_size=many"), "batch_size: input should be"),
        "setting out of range": (source(npz, "--set", "epsilon=0"), "epsilon: input should be greater"),
        "setting without value": (source(npz, "--set", "epsilon"), "NAME=VALUE"),
        "no such configuration": (source(npz, "--config", tmp / "absent.toml"), "cannot read the config"),
        "configuration is junk": (source(npz, "--config", tmp / "junk.toml"), "is not TOML"),
        "typo in the configuration": (
            source(npz, "--config", tmp / "typo.toml"),
            "unknown setting 'epslion'",
        ),
        "negative seed": (source(npz, "--seed", "-1"), "--seed"),
        "unknown accelerator": (source(npz, "--accelerator", "tpu"), "--accelerator"),
        "no devices": (source(npz, "--devices", "0"), "--devices"),
        "unknown tune": (source(npz, "--tune", "tail"), "--tune"),
        "cache limit no number": (source(npz, "--cache-limit", "nan"), "--cache-limit"),
        "batch too small": (source(v / "three.npz", "--set", "batch_size=2"), "cannot hold 3 domains"),
        "too few samples": (source(v / "two.npy", "--recipe", "pcd", clusters="2"), "at least 2 samples"),
        "more clusters than samples": (source(v / "two.npy"), "2 samples cannot form 4 clusters"),
        "unknown backbone": (source(images, "--backbone", "resnet81", *none), "did you mean"),
        "backbone for vectors": (source(npz, "--backbone", "resnet18"), "--backbone is for images"),
        "no such weights": (source(images, "--weights", tmp / "absent.pth"), "absent.pth"),
        "weights are junk": (source(images, "--weights", tmp / "junk.npy"), "junk.npy"),
        "out occupied": (source(npz, out=occupied), "is not empty: choose another --out"),
        "out occupied, resumed": (source(npz, "--resume", out=occupied), "holds no run to resume"),
        "out is a file": (source(npz, out=labels), "is a file: choose another --out"),
        "out below a file": (source(npz, out=labels / "run"), "cannot create the run folder"),
        "diverged": (
            source(npz, "--recipe", "pcd", "--set=new_layer_learning_rate=1e30", "--set=source_epochs=20"),
            "no longer finite",
        ),
        "labels missing": (target(npy, tmp / "absent.json"), "cannot read the label file"),
        "labels are junk": (target(npy, tmp / "junk.json"), "is not a label file"),
        "labels of other samples": (target(npy, v / "foreign.json"), "none of the 36 samples has a label"),
        "labels with scores": (target(npy, v / "closed.json"), "unexpected or missing fields: scores"),
        "no labels at all": (["train-target", npy, "--out", new], "--labels"),
        "several domains as target": (target(npz, labels), "a target is one domain"),
        "target out occupied": (target(npy, labels, out=occupied), "is not empty"),
        "label with a target run": (["label", r / "target", npy, "--out", new], "role 'target'"),
        "label without a run": (["label", tmp / "absent", npy, "--out", new], "it is no run folder"),
        "label with other width": (["label", r / "source", v / "wide.npy", "--out", new], "takes 6"),
        "label with images": (["label", r / "source", tmp / "flat", "--out", new], "not a folder"),
        "label below a file": (["label", r / "source", npy, "--out", labels / "l.json"], "exists"),
        "label into a folder": (["label", r / "source", npy, "--out", occupied], "irectory"),
        "predict with a source run": (predict(r / "source", npy), "source models stay with their owner"),
        "predict with an unfinished run": (predict(r / "unfinished", npy), "the run is not finished"),
        "predict with a broken run": (predict(tmp / "broken", npy), "is damaged"),
        "predict other width": (predict(r / "target", v / "wide.npy"), "width 99; the model takes 6"),
        "predict several domains": (predict(r / "target", npz), "a target is one domain"),
        "predict images": (predict(r / "target", tmp / "flat"), "takes embeddings"),
        "sort vectors": (predict(r / "target", npy, "--sort-into", tmp / "s"), "needs images"),
        "predict into a folder": (predict(r / "target", npy, out=occupied), "irectory"),
        "evaluate vectors": (["evaluate", r / "target", npy], "has no class folders"),
        "evaluate nothing": (["evaluate", r / "target", tmp / "absent.npy"], "There is no file"),
        "demo in a folder in use": (["demo", "--out", occupied], "holds other things than a demo"),
        "demo in a file": (["demo", "--out", labels], "is a file"),
    }


def test_every_mistake_is_one_line_and_leaves_nothing(
    vectors: Path, pictures: Path, runs: Path, tmp_path: Path, ucds_command: Command
) -> None:
    problems = []
    for name, (arguments, words) in mistakes(vectors, pictures, runs, tmp_path).items():
        before = tree(tmp_path)
        found = ucds_command(*arguments)
        errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
        others = [line for line in found.err.splitlines() if not line.startswith(("warning: ", "error: "))]
        progress = [line for line in others if "s left)" not in line]
        after = tree(tmp_path)
        complaints = {
            f"status {found.status}": found.status != 2,
            f"words: {found.err}": len(errors) != 1 or words not in errors[0],
            f"other output: {progress} {found.out}": bool(progress or found.out),
            f"left behind: {sorted(after.keys() ^ before.keys())}": after != before,
        }
        problems += [f"{name}: {complaint}" for complaint, wrong in complaints.items() if wrong]
    assert problems == []


def test_a_mistake_in_a_real_process(vectors: Path, tmp_path: Path) -> None:
    found = in_subprocess(
        "train-source", vectors / "source.npz", "--clusters", "1", "--out", tmp_path / "new"
    )
    assert found.status == 2
    assert found.out == ""
    assert len(found.err.splitlines()) == 1
    assert found.err.startswith("error: ")
    assert not (tmp_path / "new").exists()


def test_offline_default_weights_are_one_clear_error(pictures: Path, tmp_path: Path) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "TORCH_HOME": str(tmp_path / "torch")}
    arguments = ("train-source", pictures / "source", "--clusters", "3", "--out", tmp_path / "new")
    found = in_subprocess(*arguments, "--cache", tmp_path / "cache", env=offline)
    assert found.status == 2
    errors = [line for line in found.err.splitlines() if line]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert "--weights" in errors[0]
    assert not (tmp_path / "new").exists()


def test_a_run_that_differs_is_not_resumed(vectors: Path, tmp_path: Path, ucds_command: Command) -> None:
    out = tmp_path / "run"
    command = ("train-source", vectors / "source.npz", "--out", out, "--resume")
    ucds_command(*command, "--clusters", 4, *SHORT)
    (out / "model.safetensors").unlink()  # as if it had not come so far
    before = tree(out)
    other = vectors / "three.npz"
    for arguments, words in (
        ((*command, "--clusters", 5, *SHORT), "its clusters is 4, not 5"),
        ((*command, "--clusters", 4, *SHORT, "--seed", 1), "its seed is 0, not 1"),
        ((*command, "--clusters", 4), "its config.clustering_epochs is 2, not 30"),
        ((*command, "--clusters", 4, *SHORT, "--domains", "a"), "its data is"),
        (("train-source", other, "--out", out, "--resume", "--clusters", 4, *SHORT), "its data is"),
    ):
        found = ucds_command(*arguments)
        assert found.status == 2
        assert f"holds another run: {words}" in found.err
        assert tree(out) == before
    assert ucds_command(*command, "--clusters", 4, *SHORT).status == 0


def test_a_finished_run_is_left_as_it_is(runs: Path, vectors: Path, ucds_command: Command) -> None:
    before = tree(runs / "source")
    command = ("train-source", vectors / "source.npz", "--clusters", 4, "--out", runs / "source", *SHORT)
    assert "is not empty" in ucds_command(*command).err
    found = ucds_command(*command, "--resume")
    assert found.status == 0
    assert "is finished already" in found.err
    assert tree(runs / "source") == before


def test_sorting_refuses_a_folder_in_use_before_anything_is_written(
    pictures: Path, tmp_path: Path, ucds_command: Command
) -> None:
    target, cache = pictures / "target", ("--cache", tmp_path / "cache")
    ids = [f"{shape}/{i}.png" for shape in SHAPES for i in range(8)]
    write_labels(tmp_path / "labels.json", ids, [i % 4 for i in range(24)])
    labels = ("--labels", tmp_path / "labels.json")
    done = ucds_command("train-target", target, *labels, "--out", tmp_path / "run", *EDGES, *SHORT, *cache)
    assert done.status == 0, done.err
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    predict = ("predict", tmp_path / "run", target, "--out", tmp_path / "p.csv", *cache, "--sort-into")
    for folder in (tmp_path / "used", tmp_path / "used" / "file"):
        before = tree(tmp_path)
        found = ucds_command(*predict, folder)
        assert (found.status, found.err.count("\n")) == (2, 1)  # before any work
        assert "is not an empty folder: choose another --sort-into" in found.err
        assert tree(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert ucds_command(*predict, tmp_path / "empty").status == 0
    assert len(list(tmp_path.glob("empty/*/*.png"))) == 24


def test_sorting_keeps_files_apart_whatever_their_names(tmp_path: Path, ucds_command: Command) -> None:
    images = tmp_path / "images"
    names = [b"a_/b.png", b"a/_b.png", b"a/b.png", b"a__b.png", b"a/__b.png", b"a__/b.png", b"\xff.png"]
    for seed, name in enumerate(names):
        draw(images / os.fsdecode(name), "disc", seed, ("white", "black"))
    run, cache = tmp_path / "run", ("--cache", tmp_path / "cache")
    write_labels(tmp_path / "labels.json", ["a/b.png"], [0])
    labels = ("--labels", tmp_path / "labels.json")
    assert ucds_command("train-target", images, *labels, "--out", run, *EDGES, *SHORT, *cache).status == 0
    sort = ("--sort-into", tmp_path / "sorted")
    found = ucds_command("predict", run, images, "--out", tmp_path / "p.csv", *sort, *cache)
    assert found.status == 0, found.err
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_signal_stops_with_saved_work_and_resume_finishes(
    number: signal.Signals,
    side: str,
    vectors: Path,
    tmp_path: Path,
    ucds_command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = ("--clusters", 4) if side == "source" else ("--labels", vectors / "labels.json")
    data = vectors / ("source.npz" if side == "source" else "target.npy")
    settings = [f"--set={name}_epochs=20" for name in ("source", "clustering", "refinement")]
    recipe = ("--recipe", "pcd", "--checkpoint-seconds", "1e9")
    command = (f"train-{side}", data, *more, *settings, *recipe, "--out")
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:
        signalled(patch, number, 1, after=4)
        found = ucds_command(*command, tmp_path / "stopped")
    assert found.status == 130
    assert found.err.splitlines()[-1] == "stopped, with all work saved: go on with --resume"
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (tmp_path / "stopped" / "checkpoint.pt").exists()
    assert not (tmp_path / "stopped" / "model.safetensors").exists()
    assert ucds_command(*command, tmp_path / "stopped", "--resume").status == 0
    assert ucds_command(*command, tmp_path / "whole").status == 0
    stopped, whole = ((tmp_path / out / "log.jsonl").read_text() for out in ("stopped", "whole"))
    assert stopped == whole
    assert not (tmp_path / "stopped" / "checkpoint.pt").exists()


def test_a_second_signal_stops_at_once_without_a_traceback(
    vectors: Path, tmp_path: Path, ucds_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled(monkeypatch, signal.SIGINT, 2, after=2)
    out = tmp_path / "run"
    found = ucds_command(
        "train-source", vectors / "source.npz", "--clusters", 4, "--recipe", "pcd", "--out", out
    )
    assert found.status == 130
    assert "Traceback" not in found.err


def test_a_signal_from_outside_stops_a_real_process(vectors: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [
        "train-source",
        str(vectors / "source.npz"),
        "--clusters",
        "4",
        "--recipe",
        "pcd",
        "--out",
        str(out),
    ]
    epochs = ["--set", "source_epochs=100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "ucds", *command, *epochs], stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / "tensorboard").exists():  # it logs: the training has begun
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped, with all work saved: go on with --resume"
    assert (out / "checkpoint.pt").exists()


HEAVY = ("torch", "numpy", "scipy", "sklearn", "timm", "torchvision", "PIL", "lightning_fabric", "matplotlib")

LOADED = """
import sys
sys.argv = ["ucds", *sys.argv[1:]]
from ucds.cli import main
try:
    main()
except SystemExit as exit_:
    print("STATUS", exit_.code or 0)
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("arguments", [(), ("--help",), ("train-source", "--help"), ("predict", "--help")])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    *_, status, loaded = done.stdout.splitlines()
    assert status == "STATUS 0"
    assert "typer" in loaded.split()
    assert set(loaded.split()).isdisjoint(HEAVY)


def test_help_is_quick() -> None:
    def seconds() -> float:
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "ucds", "--help"], capture_output=True, check=True)
        assert b"train-target" in done.stdout
        return time.monotonic() - start

    assert min(seconds() for _ in range(5)) < 1.0


def test_every_command_has_help(ucds_command: Command) -> None:
    overview = ucds_command("--help").out
    commands = ("train-source", "label", "train-target", "predict", "evaluate", "demo")
    for command in commands:
        assert command in overview
        found = ucds_command(command, "--help")
        assert found.status == 0
        assert "Usage: ucds " + command in found.out
        assert found.err == ""


def test_the_installed_command_and_the_module_are_the_same() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="ucds")
    assert script.load() is ucds.cli.main
    source = Path(ucds.__file__).with_name("__main__.py").read_text()
    assert "from ucds.cli import main\n\nmain()\n" in source
