"""Tests of images inside tar files: read in place, and no damaged archive is taken for a whole one."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ucds.data.decode import UnusableImageError
from ucds.data.folders import scan_domains, scan_folder, scan_tar
from ucds.data.ground_truth import read_ground_truth
from ucds.data.images import ImageSamples
from ucds.errors import InputError


def picture(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 20), (value, 100, 50)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, files: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_images_are_read_in_place(tmp_path: Path, form: int) -> None:
    deep = "/".join(["a" * 40] * 3) + "/x.png"  # longer than a plain header's name
    files = {"000.png": picture(1), "000.json": b"{}", "000.cls": b"3", deep: picture(2), "b.txt": b"?"}
    scan = scan_tar(write_tar(tmp_path / "train-0.tar", files, form))
    assert scan.ids == ("train-0.tar/000.png", f"train-0.tar/{deep}")
    assert scan.domain_names == ("train-0",)
    assert [scan.read(0), scan.read(1)] == [files["000.png"], files[deep]]
    assert scan.file(0) is None
    samples = ImageSamples.open(scan, tmp_path / "cache", size=8)
    assert samples.read(np.array([1]))[0, :, 0, 0].tolist() == [2, 100, 50]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "train-0.tar"]


def test_a_folder_of_shards_is_a_folder_of_images(tmp_path: Path) -> None:
    for domain in ("a", "b"):
        for shard in range(2):
            files = {f"{kind}/{i}.png": picture(i) for kind in ("cat", "dog") for i in range(2)}
            write_tar(tmp_path / domain / f"{shard}.tar", files)
    source = scan_domains(tmp_path)
    assert source.domain_names == ("a", "b")
    assert source.ids[:2] == ("a/0.tar/cat/0.png", "a/0.tar/cat/1.png")
    assert len(source) == 16
    truth = read_ground_truth(source)
    assert truth is not None
    assert truth.names == ("cat", "dog")  # the shards are no classes
    assert scan_folder(tmp_path / "a").domain.tolist() == [0] * 8
    (tmp_path / "a" / "x.png").write_bytes(picture(0))  # now the archives are just files that lie about
    assert scan_folder(tmp_path / "a").ids == ("x.png",)


def test_a_shard_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.png": picture(1), "b.png": picture(2)})
    scan = scan_tar(path)
    ImageSamples.open(scan, tmp_path / "cache", size=8)
    write_tar(path, {"a.png": picture(9), "b.png": picture(2)})
    samples = ImageSamples.open(scan_tar(path), tmp_path / "cache", size=8)
    assert samples.read(np.array([0]))[0, 0, 0, 0] == 9
    os.truncate(path, scan.span(1).offset + 3)
    with pytest.raises(UnusableImageError, match=r"x\.tar/b\.png: the archive is cut off"):
        scan.read(1)


def test_no_name_in_an_archive_becomes_a_path(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(7))
    path = tmp_path / "in" / "x.tar"
    write_tar(path, {"../secret.png": picture(1), "/etc/a.png": picture(2)})
    with tarfile.open(path, "a") as tar:
        for name, kind in (
            ("link.png", tarfile.SYMTYPE),
            ("hard.png", tarfile.LNKTYPE),
            ("f.png", tarfile.FIFOTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "../secret.png"
            tar.addfile(member)
    scan = scan_tar(path)
    assert scan.ids == ("x.tar/../secret.png", "x.tar//etc/a.png")
    assert scan.read(0) == picture(1)  # of the archive, and not the file outside


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    second = 512 + 512 * -(-len(picture(1)) // 512)
    if how == "cut":
        data = data[: second + 700]
    elif how == "header":
        data[second + 150] ^= 1
    elif how == "gzip":
        import gzip

        data = bytearray(gzip.compress(bytes(data)))
    elif how == "long":  # a length of 8 GB
        header = tarfile.TarInfo("b.png")
        header.size = 8 * 10**9
        data[second : second + 512] = header.tobuf(tarfile.GNU_FORMAT)
    elif how == "negative":
        header = tarfile.TarInfo("b.png")
        header.size = -(2**40)
        data[second : second + 512] = header.tobuf(tarfile.GNU_FORMAT)
    elif how == "junk":
        data = bytearray(b"junk" * 1000)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut", "cannot be read as a tar file"),
        ("header", "a damaged header"),
        ("gzip", "a compressed one has to be unpacked"),
        ("long", "cannot be read as a tar file"),
        ("negative", "cannot be read as a tar file"),
        ("junk", "cannot be read as a tar file"),
    ],
)
def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path, how: str, words: str) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.png": picture(1), "b.png": picture(2)}, tarfile.GNU_FORMAT)
    damaged(path, how)
    with pytest.raises(InputError, match=words) as error:
        scan_tar(path)
    assert "\n" not in str(error.value)


def test_one_name_twice_nothing_at_all_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"a.png": picture(1)})
    with tarfile.open(path, "a") as tar:
        tar.addfile(tarfile.TarInfo("a.png"))
    with pytest.raises(InputError, match=r"two files of the name 'a\.png'"):
        scan_tar(path)
    with pytest.raises(InputError, match="No images in"):
        scan_tar(write_tar(tmp_path / "y.tar", {"a.txt": b"a"}))
    os.mkfifo(tmp_path / "pipe.tar")
    for name in ("absent.tar", "pipe.tar"):
        with pytest.raises(InputError, match="There is no file"):
            scan_tar(tmp_path / name)
