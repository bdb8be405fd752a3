"""Tests of bulk work by Ray, with real workers: the results of the plain loop, whoever dies on the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import ucds

pytestmark = pytest.mark.timeout(900)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the workers that belong to a command."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            found += [one] if "_Worker" in " ".join(one.cmdline()) else []
    return found


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
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(many: Path, tmp_path: Path) -> None:
    encoder = ucds.EncoderOptions("ucds/oriented_edges", "none", 64)
    with pytest.warns(ucds.UcdsWarning, match="skipped"):
        ucds.features(many, tmp_path / "plain", encoder=encoder, options=ucds.BulkOptions(shard_size=3))
    out, killed = tmp_path / "ray", set[psutil.Process]()
    command = [sys.executable, "-m", "ucds", "features", many, "--out", out, "--shard-size", "3"]
    command += ["--backbone", encoder.backbone, "--weights", "none", "--image-size", "64"]
    command += ["--engine", "ray", "--workers", "2"]
    environment = os.environ | {"RAY_worker_niceness": "0"}  # workers have the same rights as other tests
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    for done in (3, 20, 50):  # parts that are there when the next worker dies
        while len(list(out.glob("part-*.part"))) < done:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        while not (alive := [worker for worker in workers_of(process) if worker not in killed]):
            time.sleep(0.05)
        alive[0].kill()
        killed.add(alive[0])
    _, said = process.communicate(timeout=800)
    assert process.returncode == 0, said
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
