"""Tests of bulk work by Ray, with real workers: the results of the plain loop, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ucds

SECONDS = 800

pytestmark = pytest.mark.timeout(900)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a command; its workers have the same right to the processors as the other tests."""
    return subprocess.Popen(
        [sys.executable, "-m", "ucds", *map(str, arguments)],
        env=os.environ | {"RAY_worker_niceness": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait until a command has succeeded, and return what it said."""
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    return said


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the workers that belong to a command."""
    return [pid for pid in _descendants(process.pid) if b"_Worker" in _read(pid, "cmdline")]


def _descendants(ancestor: int) -> Iterator[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _read(int(entry.name), "stat").rpartition(b")")[2].split()):
            parents[int(entry.name)] = int(fields[1])
    for pid in parents:
        above = pid
        while (above := parents.get(above, 0)) not in (0, ancestor):
            pass
        if above == ancestor:
            yield pid


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, write_images: Callable[..., list[Path]]) -> Path:
    """300 images of noise, and a file that is none."""
    root = tmp_path_factory.mktemp("many") / "images"
    write_images(root, [f"{number:03}.png" for number in range(300)], size=(64, 64))
    (root / "999.png").write_bytes(b"torn")
    return root


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are found in /proc")
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(many: Path, tmp_path: Path) -> None:
    encoder = ucds.EncoderOptions("ucds/oriented_edges", "none", 64)
    with pytest.warns(ucds.UcdsWarning, match="skipped"):
        ucds.features(many, tmp_path / "plain", encoder=encoder, options=ucds.BulkOptions(shard_size=3))
    out, killed = tmp_path / "ray", set[int]()
    told = ["--backbone", encoder.backbone, "--weights", "none", "--image-size", 64, "--shard-size", 3]
    process = start("features", many, "--out", out, *told, "--engine", "ray", "--workers", 2)
    for done in (3, 20, 50):  # parts that are there when the next worker dies
        while len(list(out.glob("part-*.part"))) < done:
            assert process.poll() is None
            time.sleep(0.05)
        while not (alive := [pid for pid in workers_of(process) if pid not in killed]):
            time.sleep(0.05)
        os.kill(alive[0], signal.SIGKILL)
        killed.add(alive[0])
    said = finish(process)
    assert len(killed) == 3
    assert "features of 300 images" in said
    assert "1 images skipped" in said
    assert parts(out) == parts(tmp_path / "plain")


def test_without_ray_the_command_names_the_extra(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    options = ucds.BulkOptions("ray")
    encoder = ucds.EncoderOptions("ucds/oriented_edges", "none", 64)
    with pytest.raises(ucds.InputError, match=r"pip install 'ucds\[ray\]'"):
        ucds.features(folder, tmp_path / "out", encoder=encoder, options=options)
