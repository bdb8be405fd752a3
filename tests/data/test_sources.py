"""Tests of the one way in: whatever holds the same samples gives the same samples."""

import io
import warnings
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from ucds.data.columns import Pictures
from ucds.data.folders import Scan
from ucds.data.images import MemoryImages
from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, UcdsWarning

VECTORS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
PIXELS = np.random.default_rng(1).integers(256, size=(3, 24, 24, 3), dtype=np.uint8)
IDS = ["p", "q", "r", "s"]


def write_table(path: Path, columns: dict[str, Any]) -> None:
    frame = pandas.DataFrame(columns)
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)


def vectors_of(source: Any, **how: Any) -> VectorSamples:
    found = find_samples(source, by_domain=False, **how)
    assert isinstance(found, VectorSamples)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images in two folders."""
    for name, pixels in zip(("a/0.png", "a/1.png", "b/2.png"), PIXELS, strict=True):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "images"


def test_embeddings_are_the_same_in_every_form(tmp_path: Path) -> None:
    import datasets  # takes more than a second, which every worker would pay that collects this file

    by_name = {f"x{i}": VECTORS[:, i] for i in range(3)}
    frame = pandas.DataFrame({"id": IDS, **by_name})
    listed = [row.tolist() for row in VECTORS]
    hub = datasets.Dataset.from_dict({"sample": IDS, "embedding": listed})
    hub.save_to_disk(str(tmp_path / "saved"))
    write_table(tmp_path / "wide.parquet", {"id": IDS, **by_name})
    write_table(tmp_path / "deep.parquet", {"id": IDS, "vector": listed})
    frame.to_csv(tmp_path / "x.csv", index=False)
    named = [frame, pandas.DataFrame({"sample": IDS, "features": listed}), hub]
    named += [tmp_path / name for name in ("wide.parquet", "deep.parquet", "x.csv", "saved")]
    named += [[{"id": name, "embedding": row} for name, row in zip(IDS, VECTORS, strict=True)]]
    np.savetxt(tmp_path / "bare.csv", VECTORS, delimiter=",")
    np.save(tmp_path / "x.npy", VECTORS)
    # A matrix is what a dense copy of a sparse one is: its rows have two dimensions.
    bare = [VECTORS, np.asmatrix(VECTORS), VECTORS.tolist(), list(VECTORS), frame.drop(columns="id")]
    bare += [tmp_path / "bare.csv", str(tmp_path / "x.npy")]
    for source, ids in [*zip(named, repeat(tuple(IDS))), *zip(bare, repeat(("0", "1", "2", "3")))]:
        found = vectors_of(source)
        np.testing.assert_allclose(found.read(np.arange(len(VECTORS))), VECTORS, rtol=1e-6)
        assert found.ids == ids


def test_paths_are_the_same_in_every_form(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b/2.png", "a/0.png"]  # in an order of their own
    (folder / "list.txt").write_text("b/2.png\n\n  a/0.png\n")
    write_table(folder / "list.csv", {"score": np.array([1.0, 2.0]), "path": names})
    write_table(folder / "list.parquet", {"file_name": names, "label": ["b", "a"]})
    monkeypatch.chdir(folder)
    listed = [folder / f"list.{kind}" for kind in ("txt", "csv", "parquet")]
    arrays = [pandas.DataFrame({"path": names}), pandas.Series(names, index=[5, 8]), np.array(names)]
    for source in (*listed, *arrays, names, [Path(n) for n in names], [{"image": n} for n in names]):
        found = find_samples(source, by_domain=False)
        assert isinstance(found, Scan)
        assert found.ids == tuple(names)
        assert all(found.file(i).samefile(folder / name) for i, name in enumerate(names))


def test_pictures_are_the_same_in_every_form(folder: Path, tmp_path: Path) -> None:
    import datasets

    names = ("a/0.png", "a/1.png", "b/2.png")
    files = [(folder / name).read_bytes() for name in names]
    rows = [{"bytes": data, "path": name} for data, name in zip(files, names, strict=True)]
    write_table(tmp_path / "hub.parquet", {"image": rows, "label": [0, 1, 2]})
    pictures = [Image.open(io.BytesIO(data)) for data in files]
    hub = datasets.Dataset.from_dict({"image": [str(folder / name) for name in names], "label": [0, 1, 2]})
    sources = [PIXELS, list(PIXELS), pictures, files, tmp_path / "hub.parquet"]
    sources += [[{"image": picture, "label": 3} for picture in pictures], [(one, 3) for one in pictures]]
    sources += [hub.cast_column("image", datasets.Image())]
    named = [{"image": one, "id": f"s{i}", "domain": "nsn"[i]} for i, one in enumerate(pictures)]
    for rows in (named, datasets.Dataset.from_list(named)):
        found = find_samples(rows, by_domain=True)
        assert (tuple(found.ids), found.domain_names) == (("s0", "s1", "s2"), ("n", "s"))
    expected = PIXELS.transpose(0, 3, 1, 2)
    for source in sources:
        found = find_samples(source, by_domain=False)
        assert isinstance(found, Pictures)
        samples = MemoryImages(found, 24)
        np.testing.assert_array_equal(samples.read(np.arange(3)), expected)
        assert samples.ids == ("0", "1", "2")


def test_pictures_of_a_data_set_are_taken_one_after_the_other() -> None:
    class Careful:
        opened = 0

        def __len__(self) -> int:
            return 50

        def __getitem__(self, position: int) -> Any:
            self.opened += 1
            return Image.fromarray(PIXELS[position % 3])

    careful = Careful()
    found = find_samples(careful, by_domain=False)
    assert isinstance(found, Pictures)
    assert careful.opened == 1
    next(iter(found.pictures))
    assert careful.opened == 2


def test_a_column_of_domains_makes_a_source(folder: Path, tmp_path: Path) -> None:
    domains = ["north", "south", "north", "south"]
    frame = pandas.DataFrame({"domain": domains, "x": VECTORS[:, 0], "y2": VECTORS[:, 1]})
    found = find_samples(frame, by_domain=True)
    assert (found.domain_names, found.domain.tolist()) == (("north", "south"), [0, 1, 0, 1])
    south = find_samples(frame, by_domain=True, domains=["south"])
    assert (south.domain_names, south.ids, south.domain.tolist()) == (("south",), ("1", "3"), [0, 0])
    write_table(folder / "list.csv", {"path": ["a/0.png", "a/1.png", "b/2.png"], "domain": ["n", "s", "n"]})
    listed = find_samples(folder / "list.csv", by_domain=True, domains=["s"])
    assert (listed.domain_names, listed.ids, listed.domain.tolist()) == (("s",), ("a/1.png",), [0])
    pictures = pandas.DataFrame({"image": list(PIXELS), "domain": ["n", "s", "n"]})
    chosen = find_samples(pictures, by_domain=True, domains=["n"])
    assert isinstance(chosen, Pictures)
    np.testing.assert_array_equal(list(chosen.pictures), PIXELS[[0, 2]])
    with pytest.raises(InputError, match="holds 2 domains, but a target is one domain"):
        find_samples(frame, by_domain=False)
    with pytest.raises(InputError, match="has no domain 'east'; it has 'north', 'south'"):
        find_samples(frame, by_domain=True, domains=["east"])


def test_classes_are_no_measurements() -> None:
    frame = pandas.DataFrame({"Label": [0, 1, 2, 3], "x": VECTORS[:, 0], "target": [3.0, 2, 1, 0]})
    with pytest.warns(UcdsWarning, match="may be classes are left out: Label, target"):
        assert vectors_of(frame).rows.shape == (4, 1)
    with warnings.catch_warnings(action="error"):
        vectors_of(frame[["x"]])


def test_names_of_columns_have_any_case_and_spaces_around_them(tmp_path: Path) -> None:
    lines = [f"{name}, {name}, {x}, 2" for name, x in zip(IDS, VECTORS[:, 0], strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["ID, Domain, x, label", *lines]))
    with pytest.warns(UcdsWarning, match=r"may be classes are left out: +label"):
        found = find_samples(tmp_path / "x.csv", by_domain=True)
    assert isinstance(found, VectorSamples)
    assert (found.ids, found.rows.shape, len(found.domain_names)) == (tuple(IDS), (4, 1), 4)


def test_numbers_of_rows_are_no_measurements_and_fractions_without_a_name_are(tmp_path: Path) -> None:
    frame = pandas.DataFrame(VECTORS[:, :2], index=[7, 3, 5, 9], columns=["a", "b"])
    frame.to_csv(tmp_path / "x.csv")
    frame.to_parquet(tmp_path / "x.parquet")
    again = pandas.read_csv(tmp_path / "x.csv")
    for source in (tmp_path / "x.csv", tmp_path / "x.parquet", again):
        with pytest.warns(UcdsWarning, match="that number the rows are left out: "):
            found = vectors_of(source)
        np.testing.assert_allclose(found.read(np.arange(4)), VECTORS[:, :2], rtol=1e-6)
    assert vectors_of(pandas.DataFrame({"": [0.5, 1.0], "b": [1.0, 2.0]})).columns == ("", "b")


def test_only_line_feeds_and_carriage_returns_separate_the_paths_of_a_list(tmp_path: Path) -> None:
    names = ("a\u2028b.png", "c\x85.png", "d.png")
    (tmp_path / "list.txt").write_bytes("\r\n".join(names).encode())
    assert find_samples(tmp_path / "list.txt", by_domain=False).ids == names


def test_ids_of_digits_stay_as_they_are_written(tmp_path: Path) -> None:
    ids = ("007", "7", "10000000000000000001", "10000000000000000002")
    lines = [f"{name},{x}" for name, x in zip(ids, VECTORS[:, 0], strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["id,x", *lines]))
    assert vectors_of(tmp_path / "x.csv").ids == ids


def test_blanks_around_a_path_do_not_count_unless_a_file_has_them(tmp_path: Path) -> None:
    for name in ("a.png", " b.png"):
        (tmp_path / name).touch()
    (tmp_path / "x.csv").write_text("path\n a.png \n b.png\n")
    assert find_samples(tmp_path / "x.csv", by_domain=False).paths == ("a.png", " b.png")


def test_several_data_sets_are_refused_by_their_names(tmp_path: Path) -> None:
    import datasets

    one = datasets.Dataset.from_dict({"x": [1.0, 2.0]})
    both = datasets.DatasetDict({"train": one, "test": one})
    both.save_to_disk(str(tmp_path / "saved"))
    for source in (both, tmp_path / "saved"):
        with pytest.raises(InputError, match="mapping of 'train', 'test': give one data set"):
            find_samples(source, by_domain=False)
    assert len(find_samples(tmp_path / "saved" / "train", by_domain=False).ids) == 2


def test_a_row_without_its_picture_is_refused_when_it_is_read() -> None:
    found = find_samples([{"image": PIXELS[0]}, {"picture": PIXELS[1]}], by_domain=False)
    assert isinstance(found, Pictures)
    with pytest.raises(InputError, match="^row 1 of the data set has no 'image', unlike row 0$"):
        list(found.pictures)


def test_what_lies_at_a_path_and_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe9.png")
    (tmp_path / "x.csv").mkdir()
    expected = {
        "empty.txt": "there are no image files",
        "latin.txt": "cannot be read as a list of paths in UTF-8",
        "absent.txt": "cannot be read as a list of paths",
        "x.csv": "is a folder with the name of a file",
        "absent.csv": "There is no file",
        "absent": "There is no folder",
    }
    for name, words in expected.items():
        with pytest.raises(InputError, match=words):
            find_samples(tmp_path / name, by_domain=False)
