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
