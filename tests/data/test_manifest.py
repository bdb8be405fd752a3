"""The memory of decoded files."""

import errno
import hashlib
import os
import tempfile

from ucds.data.manifest import Manifest, stamp

KEY, OTHER = bytes(range(16)), bytes(range(16, 32))


def remembered(tmp_path, kind="1"):
    return Manifest(tmp_path, tmp_path / "data", kind)


def test_files_are_known_while_they_are_unchanged(tmp_path):
    file = tmp_path / "x.jpg"
    file.write_bytes(b"one")
    remembered(tmp_path).add([("x.jpg", stamp(file), KEY)])
    again = remembered(tmp_path)
    assert again.key("x.jpg", stamp(file)) == KEY
    assert again.key("y.jpg", stamp(file)) is None
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # same length, same time of modification
    assert again.key("x.jpg", stamp(file)) is None
    assert again.key("x.jpg", stamp(tmp_path / "gone")) is None


def test_roots_and_kinds_are_apart(tmp_path):
    remembered(tmp_path).add([("x.jpg", (1, 2, 3), KEY)])
    assert remembered(tmp_path, kind="2").key("x.jpg", (1, 2, 3)) is None
    assert Manifest(tmp_path, tmp_path / "other", "1").key("x.jpg", (1, 2, 3)) is None


def test_the_last_line_counts(tmp_path):
    manifest = remembered(tmp_path)
    manifest.add([("x.jpg", (1, 2, 3), KEY)])
    manifest.add([("x.jpg", (4, 5, 6), OTHER)])
    assert remembered(tmp_path).key("x.jpg", (4, 5, 6)) == OTHER
    assert remembered(tmp_path).key("x.jpg", (1, 2, 3)) is None


def test_torn_and_foreign_lines_are_passed_over(tmp_path):
    manifest = remembered(tmp_path)
    manifest.add([("x.jpg", (1, 2, 3), KEY)])
    with manifest.path.open("ab") as file:
        file.write(b'null\n7\n["a"]\n{"b": 1}\n\xff\xfe\n["y.jpg", 1, 2, 3, "xy"]\n["z.jpg", 1, 2')
    manifest = remembered(tmp_path)
    manifest.add([("w.jpg", (7, 8, 9), OTHER)])
    again = remembered(tmp_path)
    assert again.key("x.jpg", (1, 2, 3)) == KEY
    assert again.key("w.jpg", (7, 8, 9)) == OTHER
    assert again.key("y.jpg", (1, 2, 3)) is None


def test_odd_names(tmp_path):
    names = ["new\nline.jpg", "über.jpg", os.fsdecode(b"caf\xe9.jpg"), "\u2028.jpg"]
    remembered(tmp_path).add([(name, (1, 2, 3), KEY) for name in names])
    again = remembered(tmp_path)
    assert all(again.key(name, (1, 2, 3)) == KEY for name in names)


def test_outdated_lines_are_dropped_in_the_end(tmp_path):
    manifest = remembered(tmp_path)
    for i in range(1200):
        manifest.add([("x.jpg", (i, i, i), KEY)])
    assert remembered(tmp_path).key("x.jpg", (1199,) * 3) == KEY
    assert len(manifest.path.read_text().split()) < 20
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_manifest_that_cannot_be_shortened_is_used_as_it_is(tmp_path, monkeypatch):
    manifest = remembered(tmp_path)
    for i in range(1200):
        manifest.add([("x.jpg", (i, i, i), KEY)])
    before = manifest.path.read_text()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    assert remembered(tmp_path).key("x.jpg", (1199,) * 3) == KEY
    assert manifest.path.read_text() == before


def test_name_and_lines_are_a_format(tmp_path):
    """A cache that was made before must not be decoded anew."""
    name = hashlib.sha256(f"1|{(tmp_path / 'data').resolve()}".encode()).hexdigest()[:32]
    entry = f'["a/x.jpg", 1, 2, 3, "{KEY.hex()}"'
    check = hashlib.sha256(f"{entry}]".encode()).hexdigest()[:8]
    (tmp_path / f"{name}.jsonl").write_text(f'\n{entry}, "{check}"]\n')
    assert remembered(tmp_path).key("a/x.jpg", (1, 2, 3)) == KEY


def test_a_line_with_any_byte_changed_is_passed_over(tmp_path):
    manifest = remembered(tmp_path)
    manifest.add([("x.jpg", (1, 2, 3), KEY)])
    whole = manifest.path.read_bytes()
    for place in range(len(whole)):
        manifest.path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        assert remembered(tmp_path).key("x.jpg", (1, 2, 3)) in (None, KEY)
