"""Tests of ids and of cells without a path: an id is kept exactly, and a row without an image is listed."""

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from ucds.bulk.shards import find_shards
from ucds.data.columns import read_texts
from ucds.data.folders import Scan, scan_files, scan_folder
from ucds.data.ground_truth import read_ground_truth
from ucds.data.images import ImageSamples
from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, UcdsWarning
from ucds.labels.cluster_labels import ClusterLabels

NAMES = ["x/0.png", "x/1.png", "y/2.png", "y/3.png"]
PIXELS = np.zeros((2, 16, 16, 3), np.uint8)


find = partial(find_samples, by_domain=False)

REPEATED: dict[str, Callable[[Path], Any]] = {
    "vectors": lambda folder: VectorSamples(np.ones((2, 1)), ids=["7", "7"]),
    "pictures in a frame": lambda folder: find(pandas.DataFrame({"id": [7, 7], "image": list(PIXELS)})),
    "pictures in rows": lambda folder: find([{"id": 7, "image": pixels} for pixels in PIXELS]),
    "image files": lambda folder: scan_files(["a.png", "b.png"], ids=["7", "7"]),
    "rows of a parquet file": lambda folder: find_shards(write_shards(folder, [[7, 7]]), 10),
    "one of two files": lambda folder: find_shards(write_shards(folder, [[7, 7], [1, 2]]), 10),
}


def write_shards(folder: Path, ids: list[list[Any]]) -> Path:
    place = folder / "shards"
    place.mkdir()
    for number, of_shard in enumerate(ids):
        table = pyarrow.table({"id": of_shard, "image": [{"bytes": b"x"}] * len(of_shard)})
        pyarrow.parquet.write_table(table, place / f"{number}.parquet")
    return place


@pytest.mark.parametrize("kind", REPEATED)
def test_samples_of_one_id_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two samples have the id '7'"):
        REPEATED[kind](tmp_path)


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ([[0, 1], [0, 1]], ["0.parquet/0", "0.parquet/1", "1.parquet/0", "1.parquet/1"]),
        ([[0.0, 1.0], [2.0, 3.0]], ["0", "1", "2", "3"]),
    ],
)
def test_ids_that_restart_in_each_shard_are_made_unique_by_its_name(
    given: list[list[Any]], ids: list[str], tmp_path: Path
) -> None:
    found = find_shards(write_shards(tmp_path, given), 10)
    assert [one for shard in found.shards for one in shard.images().ids] == ids


def test_a_name_and_its_escape_are_refused(tmp_path: Path) -> None:
    for name in (b"\xff.png", b"\\xff.png"):
        (tmp_path / os.fsdecode(name)).touch()
    with pytest.raises(InputError, match="two samples have the id"):
        scan_folder(tmp_path)


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\r\nb", "a\tb", "\x1b[2J", "a\u2028b", " a ", '"a",b'])
def test_an_id_with_control_characters_is_kept_exactly(name: str, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"id": [name, "b"], "x": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False, quoting=1, lineterminator="\n")
    for source in (frame, tmp_path / "x.parquet", tmp_path / "x.csv"):
        found = find(source)
        assert found.ids == (name, "b")
        ClusterLabels(found.ids, np.array([0, 1]), 2, "p").save(tmp_path / "l.json")
        assert ClusterLabels.load(tmp_path / "l.json").ids == (name, "b")


@pytest.mark.parametrize("name", ["a\0b", "\0", "\udcff"])
def test_an_id_that_tables_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="^the data set: an id holds NUL, or is not Unicode text"):
        find([{"id": name, "x": 1.0}, {"id": "b", "x": 2.0}])


@pytest.mark.parametrize("empty", ["", None, float("nan")])
def test_an_empty_id_is_the_number_of_its_row(empty: Any, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"id": ["a", empty, empty], "x": [1.0, 2.0, 3.0]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    for source in (frame, tmp_path / "x.csv"):
        assert find(source).ids == ("a", "1", "2")


@pytest.mark.parametrize("column", ["path", "image"])
def test_a_table_of_paths_keeps_its_ids_and_texts(column: str, tmp_path: Path, write_images: Any) -> None:
    images = tmp_path / "images"
    write_images(images, NAMES)
    table = pandas.DataFrame({column: NAMES, "id": list("pqrs"), "text": ["one", "two", "three", "four"]})
    table.to_csv(images / "x.csv", index=False)
    found = find(images / "x.csv")
    assert isinstance(found, Scan)
    assert found.ids == tuple("pqrs")
    assert found.file(2) == images / NAMES[2]
    samples = ImageSamples(found, images.parent / "cache", size=16)
    assert samples.ids == tuple("pqrs")
    assert samples.files.take(np.array([3])).ids == ("s",)
    assert read_texts(images / "x.csv") == dict(zip("pqrs", table["text"], strict=True))
    truth = read_ground_truth(samples)
    assert truth is not None
    assert (truth.names, truth.classes.tolist()) == (("x", "y"), [0, 0, 1, 1])
    table.drop(columns="id").to_csv(images / "y.csv", index=False)
    assert read_texts(images / "y.csv") == dict(zip(NAMES, table["text"], strict=True))
    shard = find_shards(images / "x.csv", 10).shards[0].images()
    assert (shard.ids, shard.paths) == (tuple("pqrs"), tuple(NAMES))


GOOD = ("a.png", "b.png")
NO_PATHS = ["", "  ", "\t", None, math.nan, "nan", "<NA>"]
NO_FILES = [".", "./", "sub", "sub/"]  # the folder itself, and another


def csv(place: Path, cells: Sequence[Any]) -> Any:
    rows = "\n".join(f'{row},"{"" if cell is None else cell}"' for row, cell in enumerate(cells))
    (place / "t.csv").write_text(f"id,path\n{rows}\n")
    return place / "t.csv"


def parquet(place: Path, cells: Sequence[Any]) -> Any:
    texts = [None if cell is None or cell != cell else str(cell) for cell in cells]
    ids = list(map(str, range(len(texts))))
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "path": texts}), place / "t.parquet")
    return place / "t.parquet"


FORMS: dict[str, Callable[[Path, Sequence[Any]], Any]] = {
    "CSV": csv,
    "parquet": parquet,
    "frame": lambda place, cells: pandas.DataFrame({"path": cells}),
    "rows": lambda place, cells: [{"image_path": cell} for cell in cells],
    "list": lambda place, cells: list(cells),
}


@pytest.mark.parametrize("form", FORMS)
def test_cells_without_a_file_cost_no_run(
    form: str, tmp_path: Path, write_images: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path, GOOD, 0)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    # NUL only where the paths are no ids, which hold none.
    cells = [GOOD[0], *NO_PATHS, *NO_FILES, *["a\0"] * (form in ("CSV", "parquet")), GOOD[1]]
    found = find(FORMS[form](tmp_path, cells))
    with pytest.warns(UcdsWarning) as told:
        samples = ImageSamples(found, tmp_path / "cache", size=16)
    assert samples.kept.tolist() == [0, len(cells) - 1]
    assert len(samples.listed) == len(cells)
    skipped = [str(one.message) for one in told if "it is skipped" in str(one.message)]
    assert len(skipped) == len(cells) - 2
    for row in range(len(NO_PATHS)):
        assert f"row {row + 1} (no path)" in skipped[row]


def test_rows_with_ids_may_name_one_file(tmp_path: Path, write_images: Any) -> None:
    write_images(tmp_path, GOOD, 0)
    found = find(csv(tmp_path, [GOOD[0], GOOD[1], GOOD[0]]))
    with pytest.warns(UcdsWarning, match="1 of 3 images duplicates another"):
        samples = ImageSamples(found, tmp_path / "cache", size=16)
    assert list(samples.ids) == ["0", "1", "2"]


def test_paths_need_not_be_called_texts(tmp_path: Path, write_images: Any) -> None:
    write_images(tmp_path, GOOD, 0)
    table = pyarrow.table({"path": [name.encode() for name in GOOD]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    samples = ImageSamples(find(tmp_path / "t.parquet"), tmp_path / "c", size=16)
    assert tuple(samples.ids) == GOOD


def test_a_table_without_any_path_is_refused_in_one_line(tmp_path: Path) -> None:
    found = find(csv(tmp_path, ["", "", ""]))
    with pytest.raises(InputError, match=r"^None of the 3 files of 'images' can be used"):
        ImageSamples(found, tmp_path / "cache", size=16)
