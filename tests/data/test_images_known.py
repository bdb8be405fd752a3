"""The memory of decoded files."""

import errno
import os

from ucds.data.image_files import stamp
from ucds.data.images import KnownFiles

KEY, OTHER = bytes(range(16)), bytes(range(16, 32))


def remembered(tmp_path, kind="1"):
    return KnownFiles(tmp_path, tmp_path / "data", kind)


def remember(tmp_path, entries):
    known = remembered(tmp_path)
    for path, current, key in entries:
        known.add(path, current, key)
    known.save()
    return known


def test_files_are_known_while_they_are_unchanged(tmp_path):
    file = tmp_path / "x.jpg"
    file.write_bytes(b"one")
    remember(tmp_path, [("x.jpg", stamp(file), KEY)])
    again = remembered(tmp_path)
    assert again.key("x.jpg", stamp(file)) == KEY
    assert again.key("y.jpg", stamp(file)) is None
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # same length, same time of modification
    assert again.key("x.jpg", stamp(file)) is None
    assert again.key("x.jpg", stamp(tmp_path / "gone")) is None


def test_roots_and_kinds_are_apart(tmp_path):
    remember(tmp_path, [("x.jpg", (1, 2, 3), KEY)])
    assert remembered(tmp_path, kind="2").key("x.jpg", (1, 2, 3)) is None
    assert KnownFiles(tmp_path, tmp_path / "other", "1").key("x.jpg", (1, 2, 3)) is None


def test_what_others_have_saved_meanwhile_is_kept(tmp_path):
    first, second = remembered(tmp_path), remembered(tmp_path)
    for known, path in ((first, "x.jpg"), (second, "y.jpg")):
        known.add(path, (1, 2, 3), KEY)
        known.save()
    remember(tmp_path, [("x.jpg", (4, 5, 6), OTHER)])
    again = remembered(tmp_path)
    assert again.key("x.jpg", (4, 5, 6)) == OTHER
    assert again.key("x.jpg", (1, 2, 3)) is None
    assert again.key("y.jpg", (1, 2, 3)) == KEY


def test_odd_names(tmp_path):
    names = ["new\nline.jpg", "über.jpg", os.fsdecode(b"caf\xe9.jpg"), "\u2028.jpg"]
    remember(tmp_path, [(name, (1, 2, 3), KEY) for name in names])
    assert all(remembered(tmp_path).key(name, (1, 2, 3)) == KEY for name in names)


def test_a_full_disk_costs_the_memory_only(tmp_path, monkeypatch):
    known = remember(tmp_path, [("x.jpg", (1, 2, 3), KEY)])
    before = known.path.read_bytes()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    remember(tmp_path, [("y.jpg", (1, 2, 3), KEY)])
    assert known.path.read_bytes() == before


def test_a_file_with_any_byte_changed_is_passed_over(tmp_path):
    known = remember(tmp_path, [("x.jpg", (1, 2, 3), KEY)])
    whole = known.path.read_bytes()
    for place in range(len(whole)):
        known.path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        assert remembered(tmp_path).key("x.jpg", (1, 2, 3)) in (None, KEY)
    known.path.write_bytes(b"")
    assert remembered(tmp_path).key("x.jpg", (1, 2, 3)) is None
