"""Image files are read, or refused with the reason; and their cache, from the outside."""

import errno
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.data import images
from ucds.data.dataset import ImageView
from ucds.data.decode import UnusableImageError, decode_image
from ucds.data.folders import scan_domains, scan_folder
from ucds.data.image_files import map_ahead, read_image_bytes
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples
from ucds.errors import NoSpaceError, UcdsWarning, UserError

SIZE = 16
ROW = 3 * SIZE * SIZE


@pytest.fixture
def make_images(tmp_path, write_images):
    """Write noise images under names relative to ``data`` and return their paths."""
    return lambda *names, first_seed=0: write_images(tmp_path / "data", names, first_seed)


@pytest.fixture
def decodings(monkeypatch) -> list[str]:
    """The names of the files that have been decoded."""
    seen: list[str] = []

    def counted(data, size, path="image"):
        seen.append(Path(path).name)
        return decode_image(data, size, path)

    monkeypatch.setattr(images, "decode_image", counted)
    return seen


def opened(tmp_path: Path, **options) -> ImageSamples:
    return ImageSamples(scan_domains(tmp_path / "data"), tmp_path / "cache", size=SIZE, **options)


def everything(samples: Samples) -> np.ndarray:
    return samples.read(np.arange(len(samples)))


def reference(samples: ImageSamples) -> np.ndarray:
    files = [samples.files.file(i).read_bytes() for i in range(len(samples))]
    return np.stack([decode_image(data, SIZE) for data in files])


def part_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "images").glob("*/*.npy"))


def rows_stored(tmp_path: Path) -> int:
    return sum(len(np.load(path, mmap_mode="r")) for path in part_files(tmp_path))


def names(domain: str, count: int) -> list[str]:
    return [f"{domain}/{i:03}.png" for i in range(count)]


def test_files_that_cannot_be_read_are_refused_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "dangling.jpg").symlink_to("nowhere")
    (tmp_path / "circle.jpg").symlink_to("circle.jpg")
    (tmp_path / "long.jpg").write_bytes(b"some content")
    monkeypatch.setattr("ucds.data.image_files.MAX_FILE_BYTES", 10)
    for name, reason in {
        "empty": "empty file",
        "long": "too large a file",
        "folder": "not a regular file",
        "pipe": "not a regular file",
        "dangling": "cannot be read",
        "circle": "cannot be read",
        "missing": r"cannot be read \(No such file",
    }.items():
        with pytest.raises(UnusableImageError, match=rf"{name}\.jpg: {reason}"):
            read_image_bytes(tmp_path / f"{name}.jpg")


def test_results_come_in_order_and_few_wait():
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return -item

    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, work, range(30), 4)
        assert next(results) == 0
        assert max(begun) < 4
        assert list(results) == [-item for item in range(1, 30)]


def test_images_are_decoded_once(tmp_path, make_images, decodings):
    make_images("b/mug/1.png", "a/1.jpg", "a/2.png")
    seen: list[tuple[int, int]] = []
    samples = opened(tmp_path, progress=lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert seen[-1] == (3, 3)
    assert isinstance(samples, Samples)
    assert samples.ids == ("a/1.jpg", "a/2.png", "b/mug/1.png")
    assert samples.domain.tolist() == [0, 0, 1]
    assert samples.domain_names == ("a", "b")
    assert np.array_equal(everything(samples), reference(samples))
    assert samples.read(np.array([2, 0, 2])).shape == (3, 3, SIZE, SIZE)
    assert len(decodings) == 3
    again = opened(tmp_path)
    assert np.array_equal(everything(again), everything(samples))
    assert again.fingerprint == samples.fingerprint
    assert again.keys == samples.keys
    assert len(decodings) == 3
    large = ImageSamples(scan_domains(tmp_path / "data"), tmp_path / "cache", size=20)
    assert everything(large).shape == (3, 3, 20, 20)
    assert large.fingerprint != samples.fingerprint
    assert large.keys == samples.keys


def test_renamed_and_duplicated_files_reuse_rows(tmp_path, make_images, decodings):
    first, second = make_images("a/1.png", "a/2.png")
    before = opened(tmp_path)
    first.rename(first.with_name("renamed.png"))
    (tmp_path / "data" / "b").mkdir()
    shutil.copy(second, tmp_path / "data" / "b" / "copy.png")
    after = opened(tmp_path)
    assert after.ids == ("a/2.png", "a/renamed.png", "b/copy.png")
    assert after.keys == (before.keys[1], before.keys[0], before.keys[1])
    assert np.array_equal(everything(after), everything(before)[[1, 0, 1]])
    assert after.fingerprint != before.fingerprint
    assert len(decodings) == 2
    shutil.move(tmp_path / "data", tmp_path / "moved")
    one = ImageSamples(scan_folder(tmp_path / "moved" / "a"), tmp_path / "cache", size=SIZE)
    assert one.ids == ("2.png", "renamed.png")
    assert len(decodings) == 2


def test_changed_content_is_decoded_again(tmp_path, make_images, decodings, noise_image):
    path = make_images("a/1.bmp", "a/2.bmp")[0]
    before = opened(tmp_path)
    times = path.stat()
    noise_image(77).save(path)  # a bitmap of the same length
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = opened(tmp_path)
    assert decodings.count("1.bmp") == 2
    assert decodings.count("2.bmp") == 1
    assert np.array_equal(everything(after), reference(after))
    assert after.fingerprint != before.fingerprint


@pytest.mark.filterwarnings("ignore::ucds.errors.UcdsWarning")
def test_unusable_files_are_warned_of_and_dropped_until_they_are_repaired(tmp_path, make_images, noise_image):
    make_images(*names("a", 3), "b/good.png")
    unusable = {"a/000b.png": b"", "a/bad.jpg": b"words", "b/bad.png": b"", "b/torn.png": b"\x89PNG\r\n"}
    unusable |= {f"b/x{i:02}.png": b"" for i in range(20)}
    for name, content in unusable.items():
        (tmp_path / "data" / name).write_bytes(content)
    with pytest.warns(UcdsWarning) as caught:
        samples = opened(tmp_path)
    assert samples.ids == ("a/000.png", "a/001.png", "a/002.png", "b/good.png")
    assert samples.domain.tolist() == [0, 0, 0, 1]
    assert np.array_equal(everything(samples), reference(samples))
    messages = [str(warning.message) for warning in caught]
    assert (samples.skipped, len(messages)) == (24, 21)
    assert messages[0].endswith("000b.png: empty file; it is skipped")
    assert messages[-1] == "24 of 28 files cannot be used: 22 empty file, 2 not an image of a known format."
    with pytest.warns(UcdsWarning, match="24 of 28 files cannot be used"):
        assert opened(tmp_path).ids == samples.ids
    for seed, name in enumerate(unusable, 5):
        noise_image(seed).save(tmp_path / "data" / name)
    with warnings.catch_warnings(action="error"):
        assert len(opened(tmp_path)) == 28


@pytest.mark.filterwarnings("ignore::ucds.errors.UcdsWarning")
def test_a_domain_of_unusable_files_is_an_error(tmp_path, make_images):
    make_images("a/1.png")
    (tmp_path / "data" / "b").mkdir()
    (tmp_path / "data" / "b" / "1.png").touch()
    (tmp_path / "data" / "b" / "2.png").touch()
    with pytest.raises(UserError, match=r"None of the 2 files of 'b' can be used \(.*1\.png: empty file\)"):
        opened(tmp_path)


def test_the_cache_is_bounded(tmp_path, make_images, write_images, decodings):
    make_images(*names("a", 10))
    samples = opened(tmp_path, limit_bytes=4 * ROW + 5)
    assert len(decodings) == 10
    assert rows_stored(tmp_path) == 4
    order = np.array([9, 0, 5, 3, 9, 1])
    assert np.array_equal(samples.read(order), reference(samples)[order])
    assert np.array_equal(everything(samples), reference(samples))
    decodings.clear()
    again = opened(tmp_path, limit_bytes=4 * ROW)
    assert not decodings, "files that do not fit are not decoded again just to be looked at"
    assert np.array_equal(everything(again), reference(again))
    decodings.clear()
    more = opened(tmp_path, limit_bytes=7 * ROW)
    assert len(decodings) == 3
    assert np.array_equal(everything(more), reference(more))
    assert rows_stored(tmp_path) == 7
    write_images(tmp_path / "other", names("a", 6), first_seed=100)  # those of other data sets make room
    scan = scan_domains(tmp_path / "other")
    other = ImageSamples(scan, tmp_path / "cache", size=SIZE, limit_bytes=7 * ROW)
    assert rows_stored(tmp_path) == 6
    for samples in (other, more):  # a run that goes on decodes its images itself
        assert np.array_equal(everything(samples), reference(samples))


def test_files_that_vanish_or_change_after_the_opening(tmp_path, make_images, noise_image):
    first, second, third = make_images("a/1.png", "a/2.png", "a/3.png")
    samples = opened(tmp_path, limit_bytes=0)  # nothing is kept, and all is read again
    assert np.array_equal(everything(samples), reference(samples))
    first.unlink()
    noise_image(99).save(second)
    third.write_bytes(b"")
    for position, words in enumerate(
        (r"1\.png could be read", r"2\.png has changed", r"3\.png could be read")
    ):
        with pytest.raises(UserError, match=words):
            samples.read(np.array([position]))


def test_damaged_pixels_are_decoded_again(tmp_path, make_images):
    make_images(*names("a", 6))
    before = everything(opened(tmp_path))
    (path,) = part_files(tmp_path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    samples = opened(tmp_path)
    for _ in range(2):  # those that are gone are decoded at each reading
        assert np.array_equal(everything(samples), before)
    assert np.array_equal(everything(opened(tmp_path)), before)
    assert rows_stored(tmp_path) == 6
    assert np.array_equal(before, reference(samples))


def test_copies_are_counted_and_named(tmp_path, make_images):
    (path,) = make_images("a/1.png")
    for number in (2, 3, 4, 5):
        shutil.copy(path, path.with_name(f"{number}.png"))
    make_images("a/6.png", first_seed=1)
    words = r"4 of 6 images duplicate others.*: a/2\.png = a/1\.png, .*a/4\.png = a/1\.png, \.\."
    with pytest.warns(UcdsWarning, match=words):
        opened(tmp_path)


def test_a_cache_without_room_is_told_before_decoding(tmp_path, make_images, decodings, monkeypatch):
    make_images("a/1.png", "a/2.png")
    usage = shutil.disk_usage(tmp_path)._replace(free=ROW)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with pytest.raises(NoSpaceError, match="are free: free some space, bound it by UCDS_CACHE_LIMIT"):
        opened(tmp_path)
    assert decodings == []
    assert len(opened(tmp_path, limit_bytes=ROW)) == 2


def test_what_is_remembered_of_files_grows_and_serves_odd_names(tmp_path, make_images, monkeypatch):
    names = ["a/new\nline.png", "a/über.png", "a/" + os.fsdecode(b"caf\xe9.png"), "a/\u2028.png"]
    make_images(*names)
    scan = scan_domains(tmp_path / "data")
    for part in ([2, 0], [1, 3]):  # as two processes that know of different files
        ImageSamples(scan.take(part), tmp_path / "cache", size=SIZE)
    monkeypatch.setattr(images, "read_image_bytes", lambda path: pytest.fail("a file was read again"))
    assert len(opened(tmp_path)) == 4
    (known,) = (tmp_path / "cache" / "images").glob("*.known")
    known.write_bytes(known.read_bytes()[:-1] + b"?")
    with pytest.raises(pytest.fail.Exception, match="a file was read again"):
        opened(tmp_path)


def test_a_full_disk_costs_what_is_remembered_only(tmp_path, make_images, monkeypatch):
    make_images("a/1.png")
    opened(tmp_path, limit_bytes=0)
    (known,) = (tmp_path / "cache" / "images").glob("*.known")
    before = known.read_bytes()
    make_images("a/2.png", first_seed=1)
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(os, "fsync", full)
    assert len(opened(tmp_path, limit_bytes=0)) == 2
    assert known.read_bytes() == before


def test_an_encoder_sees_the_centre_of_an_image():
    raw = np.random.default_rng(0).integers(256, size=(4, 3, 41, 41), dtype=np.uint8)
    before = raw.copy()
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    seen = ImageView(crop=24).test(raw)
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen, (raw[..., 8:32, 8:32] / 255 - mean) / std, atol=2e-6)
    assert np.array_equal(raw, before)
    assert ImageView(crop=41).test(raw).shape == raw.shape
    with pytest.raises(ValueError, match="cannot be cropped"):
        ImageView(crop=42).test(raw)
