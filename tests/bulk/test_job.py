"""Tests of bulk work by the plain loop: what is written, what is not made again, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

import ucds
from ucds.bulk.finding import find_shards
from ucds.bulk.steps import EncodeStep
from ucds.training.features import frozen_features
from ucds.training.inputs import open_for_training
from ucds.training.options import CacheOptions
from ucds.training.progress import Quiet
from ucds.training.runtime import Runtime

SMALL = ucds.BulkOptions(shard_size=10, accelerator="cpu")

pytestmark = pytest.mark.filterwarnings("ignore:.*skipped:ucds.UcdsWarning")


def table(folder: Path) -> pyarrow.Table:
    """Read all shards of a folder, in their order."""
    return pyarrow.concat_tables([parquet.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def vectors(shards: pyarrow.Table) -> Any:
    return np.array(shards["features"].to_pylist(), np.float32)


def parts(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return time and content of each shard's file."""
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.parquet")}


def test_the_shards_hold_the_features_that_training_computes(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    done = ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    inputs = open_for_training(folder, "target", edges, CacheOptions(tmp_path / "cache"), Quiet())
    expected = frozen_features(inputs.backbone, inputs.data, Runtime(accelerator="cpu"), None, batch_size=64)
    found = table(tmp_path / "out")
    assert tuple(found["sample"].to_pylist()) == expected.samples.ids
    assert found["content"].to_pylist() == [key.hex() for key in inputs.data.samples.keys]
    np.testing.assert_allclose(vectors(found), expected.samples.read(np.arange(35)).numpy(), atol=1e-6)
    assert (done.samples, done.skipped, done.shards, done.made) == (35, 1, 4, 4)


def test_a_finished_shard_is_not_made_again(folder: Path, edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ucds.features(folder, out, encoder=edges, options=SMALL)
    first = parts(out)
    (out / "part-000001.parquet").unlink()
    again = ucds.features(folder, out, encoder=edges, options=SMALL)
    assert (again.samples, again.skipped, again.made) == (35, 1, 1)
    second = parts(out)
    assert {name: content for name, (_, content) in second.items()} == {
        name: content for name, (_, content) in first.items()
    }
    changed = {name for name in first if first[name][0] != second[name][0]}
    assert changed == {"part-000001.parquet"}


def test_images_that_cannot_be_used_are_named_with_their_shard(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    with pytest.warns(ucds.UcdsWarning) as told:
        ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "skipped.csv").read_text())))
    assert [(row["shard"], row["sample"]) for row in rows] == [("1", "day/torn.png")]
    assert "1 of 36 samples skipped (1 in shard 1)" in str(told[-1].message)


def test_another_job_in_the_same_folder_is_refused(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    before = parts(tmp_path / "out")
    with pytest.raises(ucds.InputError, match="shards of another job"):
        ucds.features(folder / "night", tmp_path / "out", encoder=edges, options=SMALL)
    with pytest.raises(ucds.InputError, match="shards of another job"):
        ucds.features(folder, tmp_path / "out", encoder=edges, options=ucds.BulkOptions(shard_size=11))
    assert parts(tmp_path / "out") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ucds.InputError, match="in use"):
        ucds.features(folder, tmp_path / "mine", encoder=edges, options=SMALL)
    with pytest.raises(ucds.InputError, match="lies inside"):
        ucds.features(folder, folder / "night" / "out", encoder=edges, options=SMALL)
    with pytest.raises(ucds.InputError, match="is a file"):
        ucds.features(folder, tmp_path / "mine" / "thesis.txt", encoder=edges, options=SMALL)


def test_what_a_killed_job_left_does_not_stand_in_the_way(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".job.json.x1.ucds-tmp").write_text("{")
    assert ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL).made == 4


def test_a_damaged_shard_is_refused(folder: Path, edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    (tmp_path / "out" / "part-000002.parquet").write_bytes(b"PAR1")
    with pytest.raises(ucds.DamagedFileError, match=r"part-000002\.parquet is damaged: delete it"):
        ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)


def test_a_folder_without_a_usable_image_is_refused(edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ucds.InputError, match=r"none of the 1 samples can be used \(a\.jpg: not an image"):
        ucds.features(tmp_path / "bad", tmp_path / "out", encoder=edges, options=SMALL)


def test_paths_lists_tables_contents_tar_files_and_stores_give_the_same_features(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("night/*.png"))
    paths = [str(folder / name) for name in names]
    (tmp_path / "list.txt").write_text("\n".join(paths))
    parquet.write_table(pyarrow.table({"path": paths}), tmp_path / "paths.parquet", row_group_size=7)
    contents = [(folder / name).read_bytes() for name in names]
    pictures = pyarrow.table({"id": names, "image": [{"bytes": data, "path": "x"} for data in contents]})
    (tmp_path / "tables").mkdir()
    parquet.write_table(pictures.slice(0, 11), tmp_path / "tables" / "a.parquet", row_group_size=4)
    parquet.write_table(pictures.slice(11), tmp_path / "tables" / "b.parquet")
    store = fsspec.filesystem("memory")
    for name, data in zip(names, contents, strict=True):
        store.pipe_file(f"/photographs/{name}", data)
    step = EncodeStep(edges.build(), accelerator="cpu")
    found = {}
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        for name in names:
            tar.add(folder / name, name)
    written = (tmp_path / name for name in ("list.txt", "paths.parquet", "tables", "images.tar"))
    for source in (folder / "night", *written):
        found[source.name] = [step(shard.rows()) for shard in find_shards(source, 5)]
    found["store"] = [step(shard.rows()) for shard in find_shards("memory://photographs", 5)]
    joined = {name: np.concatenate([rows["features"] for rows in parts]) for name, parts in found.items()}
    for name, features in joined.items():
        np.testing.assert_allclose(features, joined["night"], atol=1e-6, err_msg=name)
    ids = {name: [sample for rows in parts for sample in rows["sample"]] for name, parts in found.items()}
    assert ids["store"] == ids["tables"] == names
    assert ids["list.txt"] == ids["paths.parquet"] == paths
    assert ids["images.tar"] == [f"images.tar/{name}" for name in names]
    assert {rows["problem"][0] for parts in found.values() for rows in parts} == {""}


def test_shards_can_be_written_to_a_store(folder: Path, edges: ucds.EncoderOptions, tmp_path: Path) -> None:
    ucds.features(folder, tmp_path / "out", encoder=edges, options=SMALL)
    ucds.features(folder, "memory://results/of/today", encoder=edges, options=SMALL)
    store = fsspec.filesystem("memory")
    for name, (_, content) in parts(tmp_path / "out").items():
        assert store.cat_file(f"/results/of/today/{name}") == content
    again = ucds.features(folder, "memory://results/of/today", encoder=edges, options=SMALL)
    assert again.made == 0
    with pytest.raises(ucds.InputError, match="nowhere://x cannot be used"):
        ucds.features(folder, "nowhere://x", encoder=edges, options=SMALL)


def test_domains_are_named_where_they_are_asked_for(
    folder: Path, edges: ucds.EncoderOptions, tmp_path: Path
) -> None:
    ucds.features(folder, tmp_path / "out", encoder=edges, by_domain=True, options=SMALL)
    found = table(tmp_path / "out")
    assert found["domain"].to_pylist() == [name.partition("/")[0] for name in found["sample"].to_pylist()]


def test_the_step_is_the_same_after_its_journey_to_a_worker(folder: Path, edges: ucds.EncoderOptions) -> None:
    step = EncodeStep(edges.build(), accelerator="cpu", batch_size=4)
    rows = find_shards(folder, 9)[1].rows()
    mine, theirs = step(rows), pickle.loads(pickle.dumps(step))(rows)
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name])


def test_options_of_ray_need_ray() -> None:
    with pytest.raises(ucds.InputError, match="are for --engine ray"):
        ucds.BulkOptions(address="auto")
    with pytest.raises(ucds.InputError, match="at least 1"):
        ucds.BulkOptions(shard_size=0)


def test_the_command_says_what_it_wrote(folder: Path, tmp_path: Path, run: Any, capfd: Any) -> None:
    out = tmp_path / "out"
    command = ["features", folder, "--out", out, "--backbone", "ucds/oriented_edges", "--weights", "none"]
    assert run(*command, "--image-size", 64, "--shard-size", 20, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told == {"folder": str(out), "samples": 35, "skipped": 1, "shards": 2, "made": 2}
    card = json.loads((out / "job.json").read_text())
    assert (card["samples"], card["shards"], card["backbone"]["name"]) == (36, 2, "ucds/oriented_edges")
