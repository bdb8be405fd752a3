"""Tests of labels and predictions in bulk: they are those of `ucds.label` and `ucds.predict`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

import ucds

SMALL = ucds.BulkOptions(shard_size=10, accelerator="cpu")

pytestmark = pytest.mark.filterwarnings("ignore:.*skipped:ucds.UcdsWarning")


def read(folder: Path) -> pyarrow.Table:
    return pyarrow.concat_tables([parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def test_labels_of_images_are_those_of_one_file(folder: Path, runs: Path, tmp_path: Path) -> None:
    expected = ucds.label(runs / "source", folder, accelerator="cpu")
    done = ucds.label_in_bulk(runs / "source", folder, tmp_path / "labels", options=SMALL)
    found = ucds.ClusterLabels.load(tmp_path / "labels")
    assert found.fingerprint == expected.fingerprint
    assert (found.contents, found.provider, found.n_clusters) == (
        expected.contents,
        expected.provider,
        expected.n_clusters,
    )
    assert len(set(found.labels.tolist())) > 2  # or the comparison would say little
    assert (done.samples, done.skipped) == (35, 0)


def test_only_hard_labels_leave_the_provider(folder: Path, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels"
    ucds.label_in_bulk(runs / "source", folder, out, options=SMALL)
    assert read(out).schema.names == ["sample", "content", "label"]
    assert read(out).schema.field("label").type == pyarrow.int32()
    names = {path.name for path in out.iterdir()}
    assert names == {"job.json", *(f"part-{number:06d}.parquet" for number in range(4))}
    card = json.loads((out / "job.json").read_text())
    expected = {"format", "what", "provider", "n_clusters", "samples", "shards", "shard_size", "digest"}
    assert card.keys() == expected
    with pytest.raises(ucds.InputError, match="only one of role 'source'"):
        ucds.label_in_bulk(runs / "target", folder, tmp_path / "no", options=SMALL)


def test_features_that_are_there_need_no_encoder(
    folder: Path, runs: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    images, features = tmp_path / "from-images", tmp_path / "features"
    ucds.label_in_bulk(runs / "source", folder, images, options=SMALL)
    ucds.features(folder, features, encoder=edges, options=SMALL)
    ucds.label_in_bulk(runs / "source", features, tmp_path / "from-features", options=SMALL)
    loaded = [ucds.ClusterLabels.load(path) for path in (images, tmp_path / "from-features")]
    assert loaded[0].fingerprint == loaded[1].fingerprint
    other = ucds.EncoderOptions("ucds/oriented_edges", "none", 32)
    ucds.features(folder, tmp_path / "others", encoder=other, options=SMALL)
    with pytest.raises(ucds.InputError, match="features of another encoder"):
        ucds.label_in_bulk(runs / "source", tmp_path / "others", tmp_path / "no", options=SMALL)


def test_labels_that_are_not_finished_are_refused(folder: Path, runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels"
    ucds.label_in_bulk(runs / "source", folder, out, options=SMALL)
    (out / "part-000003.parquet").unlink()
    with pytest.raises(ucds.InputError, match="does not hold all labels yet"):
        ucds.ClusterLabels.load(out)
    with pytest.raises(ucds.DamagedFileError, match="description of label shards"):
        ucds.ClusterLabels.load(tmp_path / "labels.features")


def test_clusters_are_those_of_the_plain_command(
    folder: Path, runs: Path, tmp_path: Path, run: Callable[..., int]
) -> None:
    middle = float(np.median(ucds.predict(runs / "target", folder, accelerator="cpu").confidence))
    expected = ucds.predict(runs / "target", folder, min_confidence=middle, accelerator="cpu")
    bulk = ["--engine", "plain", "--shard-size", 10, "--min-confidence", middle, "--accelerator", "cpu"]
    assert run("predict", runs / "target", folder, "--out", tmp_path / "clusters", *bulk) == 0
    found = read(tmp_path / "clusters")
    assert tuple(found["sample"].to_pylist()) == expected.ids
    assert found["cluster"].to_pylist() == expected.clusters.tolist()
    np.testing.assert_allclose(found["confidence"].to_numpy(), expected.confidence, atol=1e-6)
    assert expected.unsorted == 17
    assert run("predict", runs / "source", folder, "--out", tmp_path / "no", *bulk) == 2


@pytest.fixture(scope="module")
def provider(blobs: Callable[..., dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished source run on embeddings."""
    root = tmp_path_factory.mktemp("provider")
    np.savez(root / "domains.npz", **blobs({"a": 40, "b": 40}))
    settings, options = ucds.ConsensusSettings(starts=1), ucds.RunOptions(accelerator="cpu")
    return ucds.train_source(root / "domains.npz", root / "run", 4, settings=settings, options=options).folder


@pytest.mark.parametrize("form", ["npy", "parquet", "npz"])
def test_embeddings_are_labelled_in_bulk(
    form: str, provider: Path, blobs: Callable[..., dict[str, np.ndarray]], tmp_path: Path
) -> None:
    target, samples = blobs({"t": 50})["t"], tmp_path / f"t.{form}"
    if form == "npy":
        np.save(samples, target)
    elif form == "npz":
        np.savez(samples, t=target)
    else:
        parquet.write_table(pyarrow.table({"embedding": target.tolist()}), samples, row_group_size=13)
    expected = ucds.label(provider, samples, accelerator="cpu")
    ucds.label_in_bulk(provider, samples, tmp_path / "labels", options=SMALL)
    found = ucds.ClusterLabels.load(tmp_path / "labels")
    assert (found.fingerprint, found.contents) == (expected.fingerprint, expected.contents)


def test_options_of_bulk_work_are_refused_without_it(
    folder: Path, runs: Path, tmp_path: Path, run: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("label", runs / "source", folder, "--out", tmp_path / "x", "--workers", 2) == 2
    assert "give --engine as well" in capfd.readouterr().err
    sorting = ["--engine", "plain", "--sort-into", tmp_path / "sorted"]
    assert run("predict", runs / "target", folder, "--out", tmp_path / "x", *sorting) == 2
    assert "not for bulk work" in capfd.readouterr().err
    assert not (tmp_path / "x").exists()
