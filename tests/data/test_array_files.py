"""Arrays are read from NumPy's files; everything else is refused in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from ucds.data.array_files import read_arrays
from ucds.errors import DamagedFileError


def test_the_content_and_not_the_name_tells_what_a_file_is(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.eye(3))
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.arange(4))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    one, two = read_arrays(tmp_path / "one.npz"), read_arrays(tmp_path / "two.npy")
    assert one.keys() == {"one"}
    assert isinstance(one["one"], np.memmap)
    assert (two["a"] == np.eye(2)).all()
    assert two["b"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<f2", "|u1", ">f4"])
def test_arrays_of_an_archive_that_is_not_compressed_are_mapped(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    made = {"ä": rng.integers(99, size=(7, 3)).astype(kind), "b": rng.integers(99, size=(5, 3)).astype(kind)}
    made["f"], made["empty"] = np.asfortranarray(made["b"]), np.zeros((0, 3), kind)
    np.savez(tmp_path / "plain.npz", **made)
    np.savez_compressed(tmp_path / "small.npz", **made)
    plain, small = read_arrays(tmp_path / "plain.npz"), read_arrays(tmp_path / "small.npz")
    assert {name for name, array in plain.items() if isinstance(array, np.memmap)} == {"ä", "b", "f"}
    assert not any(isinstance(array, np.memmap) for array in small.values())
    for found in (plain, small):
        assert found.keys() == made.keys()
        for name, array in made.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_any_damage_to_an_array_of_an_archive_is_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3000.0))
    whole = (tmp_path / "x.npz").read_bytes()
    for place in (200, len(whole) // 2, len(whole) - 200):
        (tmp_path / "x.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFileError):
            read_arrays(tmp_path / "x.npz")


def test_a_header_that_says_another_length_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(30.0))
    for change in (("(30,)", "(29,)"), ("(30,)", "(31,)")):
        content = (tmp_path / "x.npy").read_bytes().replace(*(text.encode() for text in change))
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("x.npy", content)
        with pytest.raises(DamagedFileError, match="another length than its header says"):
            read_arrays(tmp_path / "x.npz")


def header(words: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        header(b"{'a"),
        header(b"\0"),
        header(b"(" * 3000),
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(9),
    ],
)
def test_other_contents_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"x\.npy is not a readable \.npy or \.npz file"):
        read_arrays(path)


def test_objects_and_other_files_in_an_archive_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", a=np.array([{}, None]))
    with zipfile.ZipFile(tmp_path / "mixed.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")
    for name in ("objects.npz", "mixed.npz"):
        with pytest.raises(DamagedFileError):
            read_arrays(tmp_path / name)


def test_a_file_that_cannot_be_opened_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "absent.npy")
    with pytest.raises(IsADirectoryError):
        read_arrays(tmp_path)
