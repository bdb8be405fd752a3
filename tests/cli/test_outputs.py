"""An output takes the place of nothing that is read: every command that writes looks before the work."""

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_kit import WITHOUT, run_command, run_successfully


@pytest.fixture
def place(vectors: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, links to it, a photo, runs, and what else a user may have."""
    monkeypatch.chdir(tmp_path)
    rows = np.load(vectors / "target.npy")
    lines = [",".join("abcdef"), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "photo.jpg").write_text("a photo")
    (tmp_path / "hard.csv").hardlink_to("t.csv")
    for name, target in (("soft.csv", "t.csv"), ("lost.csv", "gone/t.csv"), ("loop.csv", "loop.csv")):
        (tmp_path / name).symlink_to(target)
    for name in ("photo.csv", "graph.onnx.json", "figures.json"):
        (tmp_path / name).symlink_to("photo.jpg")
    for run in ("source", "target"):
        (tmp_path / run).symlink_to(runs / run)
    return tmp_path


def state(folder: Path) -> dict[str, object]:
    """The content of each file, and where each link leads."""
    return {
        str(path): path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in [*folder.rglob("*"), *(folder / "source").glob("*"), *(folder / "target").glob("*")]
    }


LONG = "x" * 260
CONFIG = Path(__file__).parents[2] / "configs" / "digits.toml"
PREDICT = "predict target t.csv --out"
AUDIT = "audit source --members t.csv --others t.csv --out"
TRAIN = "train-target t.csv --clusters 3"
IS_READ = "is read by this command"
REFUSED = [
    (f"{PREDICT} t.csv", IS_READ),
    (f"{PREDICT} ../{{here}}/t.csv", IS_READ),
    (f"{PREDICT} hard.csv", IS_READ),
    (f"{PREDICT} soft.csv", IS_READ),
    (f"{PREDICT} photo.csv", "must end in .csv, but the link leads to"),
    (f"{PREDICT} lost.csv", "leads to a place where no file can be"),
    (f"{PREDICT} loop.csv", "cannot be written"),
    (f"{PREDICT} {LONG}.csv", "File name too long"),
    (f"{PREDICT} new.csv --sort-into photo.jpg", "is a file: choose another --sort-into"),
    ("report target --out photo.jpg", "must end in .html or .htm"),
    ("label source t.csv --out photo.jpg", "must end in .json"),
    ("label source t.csv --out source/run.json", IS_READ),
    ("evaluate target t.csv --out photo.jpg", "must end in .json"),
    ("evaluate target t.csv --out target/run.json", IS_READ),
    ("export target --out photo.jpg", "must end in .onnx"),
    ("export target --out graph.onnx", "must end in .json, but the link leads"),  # its description
    (f"{AUDIT} photo.jpg", "must end in .html"),
    (f"{AUDIT} figures.html", "must end in .json, but the link leads to"),  # its figures
    (f"{AUDIT} source/run.html", IS_READ),
    ("query t.csv --url http://127.0.0.1:9 --out photo.jpg", "must end in .json"),
    ("review target --no-open --out photo.jpg", "is a file: choose another --out"),
    ("update target t.csv --out photo.jpg", "is a file: choose another --out"),
    (f"{TRAIN} --out {LONG}", "File name too long"),
    (f"{TRAIN} --weights absent.pt --out new", "there is no weights file absent"),
    ("features t.csv --weights absent.pt --out new", "there is no weights file absent"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED)
def test_what_must_not_be_written_is_refused(place: Path, command: str, words: str) -> None:
    before = state(place)
    done = run_command(*command.format(here=place.name).split())
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert state(place) == before


def test_what_takes_time_is_not_loaded_before(place: Path) -> None:
    lines = [line.format(here=place.name) for line, _ in REFUSED]
    program = [sys.executable, "-c", WITHOUT, "torch sklearn scipy.stats pandas umap", *lines]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["ENDED 2"] * len(lines)


def test_a_link_is_followed_and_stays(place: Path) -> None:
    (place / "shared").mkdir()
    (place / "shared" / "c.csv").write_text("old")
    (place / "c.csv").symlink_to("shared/c.csv")
    (place / "new.csv").symlink_to("shared/new.csv")
    for name in ("c.csv", "new.csv"):
        run_successfully("predict", "target", "t.csv", "--out", name)
        assert (place / name).is_symlink()
        assert len((place / "shared" / name).read_text().splitlines()) == 37
    assert sorted(path.name for path in (place / "shared").iterdir()) == ["c.csv", "new.csv"]


def test_a_pipe_is_written_to_and_stays(place: Path) -> None:
    ours, theirs = os.pipe()
    run_successfully("predict", "target", "t.csv", "--out", f"/dev/fd/{theirs}")
    os.close(theirs)
    with os.fdopen(ours) as reader:
        head, *rows = reader.read().splitlines()
    assert (head, len(rows)) == ('"sample","cluster","confidence"', 36)
    os.mkfifo("pipe")
    done = run_successfully("predict", "target", "t.csv", "--out", "pipe")
    assert "no program reads the pipe" in done.err
    assert stat.S_ISFIFO((place / "pipe").stat().st_mode)


def test_an_output_of_before_is_replaced(place: Path) -> None:
    for command in (
        f"{PREDICT} c.csv",
        "report target t.csv --out r.html",
        "label source t.csv --out l.json",
    ):
        for _ in range(2):
            run_successfully(*command.split())


def leave(disk: Path, files: int) -> None:
    """Leave a file system room for so many further files and folders."""
    found = os.statvfs(disk)
    most = found.f_files - found.f_ffree + files
    subprocess.run(["mount", "-o", f"remount,nr_inodes={most}", disk], check=True)


FULL: dict[str, tuple[Callable[[Path], object], str]] = {
    "full": (
        lambda disk: (disk / "rest").write_bytes(bytes(shutil.disk_usage(disk).free)),
        "free some space",
    ),
    "without room for a file": (
        lambda disk: leave(disk, 0),
        "1 more file, and its disk takes 0: free some space",
    ),
    "only read": (
        lambda disk: subprocess.run(["mount", "-o", "remount,ro", disk], check=True),
        "is read-only; choose a place that you may write to",
    ),
}


WRITING = [
    *("report {disk}/run t.csv", "report target t.csv --out {disk}/r.html"),
    *("export {disk}/run", "export target --out {disk}/m.onnx"),
    *("export {disk}/run --format hub", "export target --format hub --out {disk}/hub"),
    *("evaluate {disk}/run t.csv", "predict target t.csv --out {disk}/c.csv"),
    *("label source t.csv --out {disk}/l.json", "update target t.csv --out {disk}/new"),
    *("train-target t.csv --clusters 3 --out {disk}/new", "features {pictures}/target --out {disk}/f"),
    "audit source --members t.csv --others t.csv --out {disk}/a.html",
    "demo --out {disk}/demo",
]
OF_RESEARCH = ["benchmark {config} --data . --results {disk}/own", "table {config} --results {disk}/own"]


@pytest.mark.parametrize("commands", [WRITING, pytest.param(OF_RESEARCH, marks=pytest.mark.torch)])
@pytest.mark.parametrize("kind", FULL)
def test_a_place_that_takes_nothing_is_refused_before_the_work(
    place: Path, disk: Path, pictures: Path, kind: str, commands: list[str]
) -> None:
    shutil.copytree(place / "target", disk / "run")
    fill, words = FULL[kind]
    fill(disk)
    before = state(disk)
    for line in commands:
        done = run_command(*line.format(disk=disk, pictures=pictures, config=CONFIG).split())
        assert (line, done.status, len(done.err.splitlines())) == (line, 2, 1)
        assert words in done.err
        assert str(disk) in done.err
    assert state(disk) == before


@pytest.mark.parametrize("files", [1, 2, 3])
def test_a_disk_that_takes_too_few_files_is_named_and_holds_nothing_half_written(
    place: Path, disk: Path, files: int
) -> None:
    for line in ("update target t.csv --out {disk}/new", "export target --format hub --out {disk}/hub"):
        leave(disk, files)
        done = run_command(*line.format(disk=disk).split())
        out = line.format(disk=disk).split()[-1]
        *_, last = done.err.splitlines()
        assert (line, done.status) == (line, 2)
        assert last.startswith(f"error: cannot write {out}")
        assert "free some space" in last
        assert not list(disk.iterdir())


def test_room_for_sorted_images_is_looked_for_before_the_work(
    place: Path, pictures: Path, disk: Path, story: tuple[Path, object]
) -> None:
    images = place / "images"
    images.mkdir()
    for path in (pictures / "target").rglob("*.png"):
        (images / path.name).write_bytes(path.read_bytes() + bytes(2**20))
    started = time.monotonic()
    done = run_command(
        "predict", story[0] / "target", images, "--out", "c.csv", "--sort-into", disk / "sorted"
    )
    assert "free some space, or choose another --sort-into" in done.err
    assert time.monotonic() - started < 1
    assert not (place / "c.csv").exists()
