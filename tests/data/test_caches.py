"""Caches in odd places, shared and full: the commands of a client give the model that an own cache gives."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = [sys.executable, "-m", "ucds"]
WITHOUT_LOCKS = """
import errno, fcntl, os, runpy, sys
locked = fcntl.flock
def flock(file, how):
    path = os.readlink(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}")
    if "/cache/" in path:
        raise OSError(errno.ENOLCK, "No locks available", path)
    locked(file, how)
fcntl.flock = flock
sys.argv = ["ucds", *sys.argv[1:]]
runpy.run_module("ucds", run_name="__main__")
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 images of three colours."""
    root = tmp_path_factory.mktemp("client") / "images"
    root.mkdir()
    generator = np.random.default_rng(0)
    for number in range(90):
        coarse = generator.integers(0, 120, (5, 6, 3), dtype=np.uint8)
        coarse[..., number % 3] += 120
        Image.fromarray(coarse).resize((80, 72)).save(root / f"{number:03}.png")
    return root


@pytest.fixture(scope="module")
def expected(images: Path) -> dict[str, np.ndarray]:
    """The model of a run with a cache of its own."""
    finish(start(images, images.parent / "own", images.parent / "own-cache"))
    return load_file(images.parent / "own" / "model.safetensors")


def start(images: Path, out: Path, cache: Path, command: list[str] = COMMAND) -> subprocess.Popen[str]:
    """Start the training of a model of three clusters."""
    words = ["train-target", images, "--out", out, "--clusters", 3, "--no-report"]
    words += ["--backbone", "ucds/oriented_edges", "--weights", "none", "--image-size", 64]
    environment = os.environ | {"UCDS_CACHE": str(cache)}
    return subprocess.Popen([*command, *map(str, words)], env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait until a command has ended with a status, and return what it said."""
    _, said = process.communicate(timeout=600)
    assert process.returncode == status, said
    return said


def same(run: Path, expected: dict[str, np.ndarray]) -> bool:
    found = load_file(run / "model.safetensors")
    return found.keys() == expected.keys() and all((found[n] == expected[n]).all() for n in expected)


def half_written(folder: Path) -> list[Path]:
    """Temporary files, and rows without a description."""
    rows = [path for path in folder.rglob("*.npy") if not path.with_suffix(".part").exists()]
    return [*folder.rglob("*ucds-tmp"), *rows]


@pytest.mark.parametrize(
    "command", [COMMAND, [sys.executable, "-c", WITHOUT_LOCKS]], ids=["locks", "no locks"]
)
def test_two_processes_share_a_cold_cache(
    command: list[str], images: Path, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    both = [start(images, tmp_path / name, cache, command) for name in ("one", "two")]
    for process in both:
        finish(process)
    assert same(tmp_path / "one", expected)
    assert same(tmp_path / "two", expected)
    assert not half_written(cache)


def test_a_cache_that_may_only_be_read_serves_what_it_has(
    images: Path, expected: dict[str, np.ndarray], disk: Path, tmp_path: Path
) -> None:
    some = tmp_path / "some"
    some.mkdir()
    for path in sorted(images.iterdir())[:40]:
        (some / path.name).symlink_to(path)
    finish(start(some, tmp_path / "some-run", disk))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    before = sorted(disk.rglob("*"))
    finish(start(images, tmp_path / "run", disk))
    assert same(tmp_path / "run", expected)
    assert sorted(disk.rglob("*")) == before


def test_a_full_cache_is_said_in_one_line_and_nothing_is_half_written(
    images: Path, expected: dict[str, np.ndarray], disk: Path, tmp_path: Path
) -> None:
    filler, room = disk / "filler", os.statvfs(disk)
    for leave in (0, 3, 60, 250):  # blocks of 4 KiB; decoded images need some 350
        filler.write_bytes(bytes((room.f_bavail - leave) * room.f_bsize))
        said = finish(start(images, tmp_path / "run", disk), status=2)
        *_, last = said.splitlines()
        assert last.startswith("error: ")
        assert "free some space" in last
        assert "Traceback" not in said
        assert not half_written(disk)
        filler.unlink()
        subprocess.run(["rm", "-rf", tmp_path / "run"], check=True)
    finish(start(images, tmp_path / "run", disk))
    assert same(tmp_path / "run", expected)
