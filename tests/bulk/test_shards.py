"""Tests of shards: the same images in every form, and marks that change with what is in the files."""

from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet as parquet
import pytest

import ucds
from ucds.bulk.shards import Found, find_shards
from ucds.data.decode import UnusableImageError


def contents(found: Found) -> list[bytes]:
    return [shard.images().read(i) for shard in found.shards for i in range(len(shard))]


def ids(found: Found) -> list[str]:
    return [name for shard in found.shards for name in shard.images().ids]


def test_every_form_gives_the_same_images(folder: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.glob("night/*.png"))
    paths, data = [str(folder / name) for name in names], [(folder / name).read_bytes() for name in names]
    (tmp_path / "list.txt").write_text("\n".join(paths))
    parquet.write_table(pyarrow.table({"path": paths}), tmp_path / "paths.parquet", row_group_size=7)
    pictures = pyarrow.table({"id": names, "image": [{"bytes": one, "path": "x"} for one in data]})
    (tmp_path / "tables").mkdir()
    parquet.write_table(pictures.slice(0, 11), tmp_path / "tables" / "a.parquet", row_group_size=4)
    parquet.write_table(pictures.slice(11), tmp_path / "tables" / "b.parquet")
    parquet.write_table(pictures.drop_columns("id"), tmp_path / "no-ids.parquet")
    store = fsspec.filesystem("memory")
    for name, one in zip(names, data, strict=True):
        store.pipe_file(f"/photographs/{name}", one)
    expected = {
        str(folder / "night"): [name.removeprefix("night/") for name in names],
        str(tmp_path / "list.txt"): paths,
        str(tmp_path / "paths.parquet"): paths,
        str(tmp_path / "tables"): names,
        str(tmp_path / "no-ids.parquet"): [str(number) for number in range(len(names))],
        "memory://photographs": names,
    }
    for source, listed in expected.items():
        found = find_shards(source, 5)
        assert ids(found) == listed, source
        assert contents(found) == data, source
        assert sum(map(len, found.shards)) == len(names), source


def test_marks_change_with_the_files(folder: Path, tmp_path: Path) -> None:
    table, seen = tmp_path / "t.parquet", list[str]()
    data = [path.read_bytes() for path in sorted(folder.glob("night/*.png"))]
    for number in (1, 2):
        parquet.write_table(pyarrow.table({"image": data[number:]}), table)
        marks = [shard.mark() for shard in find_shards(table, 4).shards]
        assert marks == [shard.mark() for shard in find_shards(table, 4).shards]
        seen += marks
    assert len(set(seen)) == len(seen)
    store = fsspec.filesystem("memory")
    store.pipe_file("/changing/a.png", b"one")
    first = find_shards("memory://changing", 4).shards[0].mark()
    store.pipe_file("/changing/a.png", b"another")
    assert find_shards("memory://changing", 4).shards[0].mark() != first


def test_domains_of_a_table_are_kept(folder: Path, tmp_path: Path) -> None:
    paths = sorted(map(str, folder.glob("*/0*.png")))
    domains = ["a" if number % 3 else "b" for number in range(len(paths))]
    data = [Path(path).read_bytes() for path in paths]
    for columns in ({"path": paths, "domain": domains}, {"image": data, "Domain": domains}):
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
        shards = find_shards(tmp_path / "t.parquet", 4).shards
        assert [name for shard in shards for name in shard.images().domains or ()] == domains


def test_what_holds_no_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ucds.InputError, match="nowhere://x cannot be used"):
        find_shards("nowhere://x", 4)
    with pytest.raises(ucds.InputError, match="holds neither images nor parquet files of them"):
        find_shards("memory://nothing", 4)
    (tmp_path / "t.parquet").write_bytes(b"torn")
    with pytest.raises(ucds.InputError, match="is not a readable parquet file"):
        find_shards(tmp_path / "t.parquet", 4)
    parquet.write_table(pyarrow.table({"image": [b"x", None]}), tmp_path / "t.parquet")
    listed = find_shards(tmp_path / "t.parquet", 4).shards[0].images()
    with pytest.raises(UnusableImageError, match="no picture"):
        listed.read(1)
