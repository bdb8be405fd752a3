"""Tests of training on features that are computed in bulk: the models are those of the usual way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ucds
from ucds.bulk.training import open_in_bulk
from ucds.config import MethodSettings
from ucds.training.progress import Quiet

K = 3
CPU = ucds.RunOptions(accelerator="cpu")
WHOLE = ucds.BulkOptions(shard_size=64, accelerator="cpu")  # shards begin where batches do
SMALL = ucds.BulkOptions(shard_size=10, accelerator="cpu")
SETTINGS: dict[str, MethodSettings] = {
    "consensus": ucds.ConsensusSettings(starts=1, bottleneck_width=8),
    "pcd": ucds.PCDSettings(
        tune="head", source_epochs=1, clustering_epochs=1, refinement_epochs=1, batch_size=16
    ),
}

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*skipped:ucds.UcdsWarning", "ignore:stage .* (empty|collapsed):ucds.UcdsWarning"
)


def parts(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return time and content of each shard's file."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.parquet")}


def model(run: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and weights of a model file; the order of the header's entries varies."""
    content = (run / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


@pytest.fixture
def labels(folder: Path, runs: Path) -> ucds.ClusterLabels:
    return ucds.label(runs / "source", folder, accelerator="cpu")


@pytest.mark.parametrize(
    ("source", "target"),
    [("consensus", "pcd"), pytest.param("pcd", "consensus", marks=pytest.mark.slow)],
)
def test_both_sides_train_the_same_model_from_shards(
    source: str,
    target: str,
    folder: Path,
    edges: ucds.EncoderOptions,
    labels: ucds.ClusterLabels,
    tmp_path: Path,
) -> None:
    for name, bulk in (("usual", None), ("bulk", WHOLE)):
        place, cache = tmp_path / name, ucds.CacheOptions(tmp_path / name / "cache")
        ucds.train_source(
            folder,
            place / "source",
            K,
            encoder=edges,
            settings=SETTINGS[source],
            options=CPU,
            cache=cache,
            bulk=bulk,
        )
        ucds.train_target(
            folder,
            place / "target",
            labels=labels,
            encoder=edges,
            settings=SETTINGS[target],
            options=CPU,
            cache=cache,
            bulk=bulk,
        )
    for side in ("source", "target"):
        assert model(tmp_path / "usual" / side) == model(tmp_path / "bulk" / side)
    assert len(parts(tmp_path / "bulk" / "source.features")) == 1
    assert not (tmp_path / "bulk" / "cache" / "images").exists()  # nothing is decoded into the cache
    found = ucds.predict(tmp_path / "bulk" / "target", folder, accelerator="cpu")  # a model of images
    assert len(found.ids) == 35


def test_finished_shards_are_not_made_again(folder: Path, edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    out, cache = tmp_path / "run", ucds.CacheOptions(tmp_path / "cache")
    ucds.features(folder, f"{out}.features", encoder=edges, by_domain=True, options=SMALL)
    before = parts(tmp_path / "run.features")
    (tmp_path / "run.features" / "part-000002.parquet").unlink()  # as if the work had been killed

    def train(options: ucds.RunOptions) -> ucds.TrainedRun:
        settings = SETTINGS["consensus"]
        return ucds.train_source(
            folder, out, K, encoder=edges, settings=settings, options=options, cache=cache, bulk=SMALL
        )

    train(CPU)
    after = parts(tmp_path / "run.features")
    assert {name for name in before if before[name][0] != after[name][0]} == {"part-000002.parquet"}
    assert {name: content for name, (_, content) in before.items()} == {
        name: content for name, (_, content) in after.items()
    }
    assert train(ucds.RunOptions(accelerator="cpu", resume=True)).resumed_finished
    assert parts(tmp_path / "run.features") == after


def test_damaged_features_in_the_cache_are_taken_from_the_shards_again(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    cache = ucds.CacheOptions(tmp_path / "cache")

    def read(run: str) -> np.ndarray[Any, Any]:
        samples = open_in_bulk(folder, "target", tmp_path / run, edges, cache, WHOLE, Quiet()).data.samples
        return samples.read(np.arange(len(samples))).numpy()

    first = read("first")
    (rows,) = tmp_path.glob("cache/*/rows")
    with rows.open("r+b") as file:
        file.write(b"\xff" * 100)
    with pytest.warns(ucds.UcdsWarning, match="damaged and are made again"):
        np.testing.assert_array_equal(read("second"), first)


def test_features_that_are_there_train_a_model_of_some_of_their_domains(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    features, cache = tmp_path / "features", ucds.CacheOptions(tmp_path / "cache")
    ucds.features(folder, features, encoder=edges, by_domain=True, options=SMALL)

    def train(source: Path, run: str, domains: list[str]) -> tuple[dict[str, Any], bytes]:
        ucds.train_source(
            source,
            tmp_path / run / "source",
            K,
            domains=domains,
            encoder=edges,
            settings=SETTINGS["consensus"],
            options=CPU,
            cache=cache,
            bulk=SMALL,
        )
        return model(tmp_path / run / "source")

    assert train(features, "from-features", ["night"]) == train(folder, "from-images", ["night"])
    assert not (tmp_path / "from-features" / "source.features").exists()
    with pytest.raises(ucds.InputError, match="no images of the domain 'dusk'"):
        train(features, "unknown", ["night", "dusk"])
    (features / "part-000001.parquet").unlink()
    with pytest.raises(ucds.InputError, match="does not hold all features yet"):
        train(features, "unfinished", ["night"])


def test_what_bulk_work_cannot_do_for_training_is_refused(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(source: Path = folder, **given: object) -> None:
        chosen = {"encoder": edges, "options": CPU, "bulk": WHOLE} | given
        ucds.train_target(source, tmp_path / "run", n_clusters=K, **chosen)  # type: ignore[arg-type]

    with pytest.raises(ucds.InputError, match="frozen encoder: leave it out, or --tune full"):
        train(settings=ucds.PCDSettings(tune="full"))
    np.save(tmp_path / "x.npy", np.ones((40, 9), np.float32))
    with pytest.raises(ucds.InputError, match="an encoder takes images, not embeddings"):
        train(tmp_path / "x.npy")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ucds.InputError, match="leave out torchrun"):
        train()
    assert list(tmp_path.iterdir()) == [tmp_path / "x.npy"]


@pytest.mark.slow
def test_the_command_trains_from_shards_and_leaves_the_report_to_another(
    folder: Path,
    edges: ucds.EncoderOptions,
    labels: ucds.ClusterLabels,
    tmp_path: Path,
    run: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    labels.save(tmp_path / "labels.json")
    encoder = ["--backbone", edges.backbone, "--weights", "none", "--image-size", 64]
    bulk = ["--engine", "plain", "--shard-size", 20, "--accelerator", "cpu", "--json"]
    target = ["train-target", folder, "--labels", tmp_path / "labels.json", "--out", tmp_path / "own"]
    assert run(*target, *encoder, *bulk) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["role"], told["n_clusters"], "report" in told) == ("target", 5, False)
    assert len(parts(tmp_path / "own.features")) == 2
    assert run("report", tmp_path / "own", folder, "--accelerator", "cpu", "--quiet") == 0
    source = ["train-source", folder, "--clusters", K, "--out", tmp_path / "provider", "--domains", "day"]
    assert run(*source, *encoder, *bulk) == 0
    card = json.loads((tmp_path / "provider.features" / "job.json").read_text())
    assert card["samples"] == 18  # of the other domain nothing is computed
    assert run(*source[:-2], *encoder, "--workers", 2) == 2
    assert "give --engine as well" in capfd.readouterr().err


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 images of noise in two domains."""
    root = tmp_path_factory.mktemp("many") / "images"
    generator = np.random.default_rng(1)
    for number in range(300):
        path = root / ("a" if number % 2 else "b") / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (7, 6, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((64, 64)).save(path)
    return root


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="Ray's processes are killed as a group")
def test_a_killed_run_with_ray_goes_on_and_gives_the_same_model(many: Path, tmp_path: Path) -> None:
    encoder, settings = ucds.EncoderOptions("ucds/oriented_edges", "none", 64), SETTINGS["consensus"]
    plain = tmp_path / "plain" / "run"
    small = ucds.BulkOptions(shard_size=4, accelerator="cpu")
    ucds.train_source(many, plain, K, encoder=encoder, settings=settings, options=CPU, bulk=small)
    out = tmp_path / "ray" / "run"
    told = ["--backbone", encoder.backbone, "--weights", "none", "--image-size", 64, "--set", "starts=1"]
    told += ["--set", "bottleneck_width=8", "--accelerator", "cpu", "--shard-size", 4]
    command = ["train-source", many, "--clusters", K, "--out", out, *told, "--engine", "ray", "--workers", 2]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "ucds", *map(str, command)],
            env=os.environ | {"RAY_worker_niceness": "0"},
            start_new_session=True,
        )

    process, features = start(), tmp_path / "ray" / "run.features"
    while len(before := parts(features)) < 5:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = parts(features)
    assert len(before) < 75
    assert start().wait(timeout=800) == 0
    after = parts(features)
    assert len(after) == 75
    assert {name: after[name] for name in before} == before  # not made again
    assert {name: content for name, (_, content) in after.items()} == {
        name: content for name, (_, content) in parts(tmp_path / "plain" / "run.features").items()
    }
    assert model(out) == model(plain)
    shutil.rmtree(out)
    assert start().wait(timeout=800) == 0  # all features are there: Ray is not even started
    assert parts(features) == after
    assert model(out) == model(plain)
