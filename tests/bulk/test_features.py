"""Tests of `ucds features`, plain and by Ray: what it writes, does not make again, and refuses."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

import ucds
from ucds.data.features import FeatureFolder
from ucds.data.sources import find_samples
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_training
from ucds.training.options import Compute

SMALL = ucds.BulkOptions(shard_size=10)

pytestmark = pytest.mark.filterwarnings("ignore:.*skipped:ucds.UcdsWarning")


def opened(folder: Path) -> FeatureFolder:
    return FeatureFolder(folder, by_domain=False)


def rows(folder: Path) -> np.ndarray[Any, Any]:
    samples = opened(folder)
    return samples.read(np.arange(len(samples)))


def parts(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return time and content of the files of each part."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("part-*")}


def contents(folder: Path) -> dict[str, bytes]:
    return {name: content for name, (_, content) in parts(folder).items()}


def changed(before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


def files_of(*numbers: int) -> set[str]:
    return {f"part-{number:06d}{suffix}" for number in numbers for suffix in (".npy", ".part")}


def command(images: Path, out: Path, shard_size: int) -> list[str]:
    """Return the arguments of a command that computes the features of ``edges``."""
    encoder = ["--backbone", "ucds/oriented_edges", "--weights", "none", "--image-size", "64"]
    return ["features", str(images), "--out", str(out), "--shard-size", str(shard_size), *encoder]


def test_the_folder_holds_the_features_that_training_computes_and_names_what_cannot_be_used(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    with pytest.warns(ucds.UcdsWarning, match="1 of 36 images cannot be used: "):
        done = ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    skipped = list(csv.DictReader(io.StringIO((tmp_path / "out" / "skipped.csv").read_text("utf-8-sig"))))
    assert [(row["part"], row["sample"]) for row in skipped] == [("1", "day/torn.png")]
    inputs = open_for_training(
        find_samples(folder, by_domain=False), edges, Compute(cache=tmp_path / "cache")
    )
    expected = frozen_features(inputs.encoder, inputs.data, Compute(cache=None)).samples
    found = opened(tmp_path / "out")
    assert found.ids == inputs.data.samples.ids
    assert found.keys == inputs.data.samples.keys
    assert (found.domain_names, found.fingerprint) == (("images",), inputs.data.samples.fingerprint)
    np.testing.assert_array_equal(rows(tmp_path / "out"), expected.read(np.arange(35)))
    assert (done.samples, done.skipped, done.parts, done.made) == (35, 1, 4, 4)
    manifest = json.loads((tmp_path / "out" / "features.json").read_text())
    assert manifest["root"] == str(folder)
    assert (manifest["encoder"]["name"], manifest["computed_by"]) == ("ucds/oriented_edges", "onnxruntime")


def test_a_finished_part_is_not_made_again(folder: Path, edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ucds.features(folder, out, encoder=edges, options=SMALL)
    first = parts(out)
    (out / "part-000001.part").unlink()
    with pytest.raises(ucds.InputError, match="does not hold all features yet: run the same"):
        opened(out)
    again = ucds.features(folder, out, encoder=edges, options=SMALL)
    assert (again.samples, again.skipped, again.made) == (35, 1, 1)
    assert changed(first, parts(out)) == files_of(1)
    assert contents(out) == {name: content for name, (_, content) in first.items()}


def test_changed_content_is_never_taken_for_finished(edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    images.mkdir()
    for number in range(6):
        Image.new("L", (9, 9), 40 * number).resize((70, 70)).save(images / f"{number}.png")
    two = ucds.BulkOptions(shard_size=2)
    ucds.features(images, out, encoder=edges, options=two)
    first, whole = parts(out), rows(out)
    Image.effect_noise((70, 70), 90).save(images / "3.png")  # the same path, other content
    again = ucds.features(images, out, encoder=edges, options=two)
    assert again.made == 1
    assert changed(first, parts(out)) == files_of(1)
    differ = (rows(out) != whole).any(axis=1)
    assert differ.tolist() == [False, False, False, True, False, False]
    for number in (2, 3, 4, 5):
        (images / f"{number}.png").unlink()
    (out / "part-000001.part").unlink()  # as a call leaves it that is killed while it removes parts
    assert ucds.features(images, out, encoder=edges, options=two).made == 0
    assert opened(out).ids == ("0.png", "1.png")
    assert set(parts(out)) == files_of(0)  # of images that are gone nothing is left


def test_other_features_in_the_same_folder_are_refused(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    before = parts(tmp_path / "out")
    other = ucds.EncoderOptions("ucds/oriented_edges", "none", 32)
    for images, encoder in ((folder / "night", edges), (folder, other)):
        with pytest.raises(ucds.InputError, match="features of other images or of another encoder"):
            ucds.features(images, tmp_path / "out", encoder=encoder, options=SMALL)
    assert parts(tmp_path / "out") == before
    for kind in ("mine", "torn"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "torn.png").write_bytes(b"torn")
    np.save(tmp_path / "x.npy", np.ones((40, 9), np.float32))
    for images, place, words in (
        (folder, "mine", "in use"),
        (folder, "mine/torn.png", "is a file"),
        (folder, folder / "night/out", "lies inside"),
        (tmp_path / "x.npy", "no", "from image files, not from embeddings"),
        (tmp_path / "out", "no", "from image files, not from embeddings"),
        (tmp_path / "torn", "none", r"none of the 1 images can be used \(torn.png: not an image"),
    ):
        with pytest.raises(ucds.InputError, match=words):
            ucds.features(images, tmp_path / place, encoder=edges, options=SMALL)
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="processes are killed as a group")
@pytest.mark.parametrize("engine", ["plain", "ray"])
def test_a_killed_command_goes_on_where_it_stopped(
    tmp_path: Path, write_images: Any, edges: ucds.EncoderOptions, engine: str
) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    write_images(images, [f"{number:03}.png" for number in range(120)], size=(64, 64))
    typed = [sys.executable, "-m", "ucds", *command(images, out, 4), "--engine", engine]
    before: dict[str, tuple[int, bytes]] = {}
    for wanted in (2, 9, 17):  # parts that are there at the kill
        process = subprocess.Popen(typed, start_new_session=True)
        while len(list(out.glob("part-*.part"))) < wanted:
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now, done = parts(out), {path.stem for path in out.glob("part-*.part")}
        assert all(now[name] == before[name] for name in before)
        before = {name: content for name, content in now.items() if Path(name).stem in done}
    assert subprocess.run(typed, check=False).returncode == 0
    after = parts(out)
    assert all(after[name] == before[name] for name in before)
    ucds.features(images, tmp_path / "whole", encoder=edges, options=ucds.BulkOptions(shard_size=4))
    assert contents(out) == contents(tmp_path / "whole")


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the workers that belong to a command."""
    found = []
    for one in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            found += [one] if "_Worker" in " ".join(one.cmdline()) else []
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, write_images: Any, edges: ucds.EncoderOptions
) -> None:
    images, out, killed = tmp_path / "images", tmp_path / "ray", set[psutil.Process]()
    write_images(images, [f"{number:03}.png" for number in range(300)], size=(64, 64))
    (images / "999.png").write_bytes(b"torn")
    ucds.features(images, tmp_path / "plain", encoder=edges, options=ucds.BulkOptions(shard_size=3))
    typed = [sys.executable, "-m", "ucds", *command(images, out, 3), "--engine", "ray", "--workers", "2"]
    environment = os.environ | {"RAY_worker_niceness": "0"}  # workers have the same rights as other tests
    process = subprocess.Popen(typed, env=environment, stderr=subprocess.PIPE, text=True)
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
    assert "1 cannot be used" in said
    assert contents(out) == contents(tmp_path / "plain")


def test_the_command_says_what_it_wrote(folder: Path, tmp_path: Path, run: Any, capfd: Any) -> None:
    out = tmp_path / "out"
    assert run(*command(folder, out, 20), "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told == {"folder": str(out), "samples": 35, "skipped": 1, "parts": 2, "made": 2}
