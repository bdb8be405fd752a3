"""Tests of atomic writing: a reader sees the old file or the new one, whatever happens."""

import errno
import fcntl
import os
import re
import resource
import stat
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from pydantic import BaseModel

from ucds.errors import DamagedFileError, InputError, NoSpaceError
from ucds.files import (
    append_line,
    digest_of,
    make_private,
    making,
    parse_json,
    read_json,
    read_sealed,
    read_toml,
    refuse_inside,
    require_space,
    require_writable,
    sweep,
    write_atomically,
    write_sealed,
    write_text_atomically,
)
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import Journal
from ucds.labels.wire import ServiceInfo


def test_writes_bytes_and_text_makes_folders_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, lambda file: file.write(b"\x00\xff"))
    assert path.read_bytes() == b"\x00\xff"
    write_text_atomically(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("existed", [True, False])
def test_while_writing_and_after_a_failure_things_are_as_they_were(
    tmp_path: Path, error: type[BaseException], existed: bool
) -> None:
    path = tmp_path / "file"
    if existed:
        path.write_text("old")

    def write(file: IO[bytes]) -> None:
        file.write(b"half")
        file.flush()
        assert path.exists() == existed
        assert not existed or path.read_text() == "old"
        raise error

    with pytest.raises(error):
        write_atomically(path, write)
    assert [entry.name for entry in tmp_path.iterdir()] == (["file"] if existed else [])
    assert not existed or path.read_text() == "old"


def test_what_is_in_the_way_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_text_atomically(tmp_path / "folder", "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        write_text_atomically(tmp_path / "file" / "inner", "y")
    assert (tmp_path / "file").read_text() == "x"
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "folder"}


def test_permissions_follow_the_umask_which_stays_for_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = os.umask
    before = change(0o027)
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask is changed, for all threads"))
    try:
        write_text_atomically(tmp_path / "file", "x")
    finally:
        change(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_private_folder_is_its_owners_alone_and_one_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old").chmod(0o755)
    for name, mode in (("above/new", 0o700), ("old", 0o755)):
        make_private(tmp_path / name)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "file/below", "link", f"{'x' * 300}"):
        with pytest.raises(InputError, match=r"cannot create the folder .*; choose another$"):
            make_private(tmp_path / name)


FULL = r"free some space, then run the same again \(a training with `resume=True`\)"
LOCKED = "choose a place that you may write to"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        *((OSError(code, os.strerror(code)), FULL) for code in (errno.ENOSPC, errno.EDQUOT)),
        *((OSError(code, os.strerror(code)), LOCKED) for code in (errno.EROFS, errno.EACCES)),
        (OSError("3360 requested and 64 written"), FULL),  # as NumPy says it, without a number
        (OSError(errno.EIO, os.strerror(errno.EIO)), None),
    ],
)
def test_an_error_of_the_system_names_the_file_and_a_remedy_if_there_is_one(
    tmp_path: Path, error: OSError, remedy: str | None
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write(file: IO[bytes]) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(NoSpaceError if remedy else OSError) as told:
        write_atomically(path, write)
    if remedy:
        assert re.fullmatch(f"cannot write {path}: {error.strerror or error}; {remedy}", str(told.value))
    else:
        assert (told.value.errno, told.value.filename) == (error.errno, str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_lines_are_added_after_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    append_line(path, "two")
    path.write_bytes(path.read_bytes() + b"cut sho")
    append_line(path, "three")
    assert path.read_text() == "one\ntwo\nthree\n"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))  # as on a disk that is full
    try:
        with pytest.raises(NoSpaceError, match="cannot write .*lines: File too large"):
            append_line(path, "four")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_line_waits_until_another_writer_has_finished(tmp_path: Path) -> None:
    """A second writer that finds the end cut short would remove the line that the first one adds."""
    path = tmp_path / "lines"
    path.write_bytes(b"cut sho")
    with ThreadPoolExecutor(1) as pool:
        with path.open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            adding = pool.submit(append_line, path, "one")
            assert not wait([adding], timeout=0.3).done
        adding.result(timeout=10)
    assert path.read_text() == "one\n"


class Pair(BaseModel):
    one: int
    other: int


def test_json_of_a_known_form_is_read_and_anything_else_named(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_bytes(b'\xef\xbb\xbf{"one": 1, "other": 2}')  # as some editors write it
    assert read_json(path, Pair, "pair") == Pair(one=1, other=2)
    path.write_text('{"one": 1}')
    with pytest.raises(DamagedFileError, match=r"pair\.json is not a usable pair: other: Field required"):
        read_json(path, Pair, "pair")
    with pytest.raises(InputError, match="cannot read the pair .*: No such file"):
        read_json(tmp_path / "gone.json", Pair, "pair")


def test_text_that_is_nested_too_deeply_is_a_fault_like_others(tmp_path: Path) -> None:
    assert parse_json("{}") == {}
    for text in ("[" * 100_000, "{"):
        with pytest.raises(ValueError):  # noqa: PT011  (the words are the parser's)
            parse_json(text)
    path = tmp_path / "deep.toml"
    path.write_text("a = 1")
    assert read_toml(path, "configuration") == {"a": 1}
    for text in ("a = " + "[" * 5000, "{"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"deep\.toml is not TOML"):
            read_toml(path, "configuration")


def test_a_digest_is_the_sha256_of_all_parts() -> None:
    assert digest_of(b"ab", memoryview(b"c")).startswith("ba7816bf8f01cfea")


def test_what_a_killed_process_left_is_swept_and_what_looks_like_it_is_not(tmp_path: Path) -> None:
    left, folder = tmp_path / f".model.{'ab' * 8}.ucds-tmp", tmp_path / f".new.{'ab' * 8}.ucds-tmp"
    others = [".hidden", ".mine.ucds-tmp", ".new.partial", "kept"]
    for path in (left, *(tmp_path / name for name in others)):
        path.write_text("x")
    folder.mkdir()
    (folder / "file").touch()
    sweep(tmp_path, older_than=60)
    assert left.exists()
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    write_text_atomically(tmp_path / "file", "x")
    with making(tmp_path / "new") as partial:
        (partial / "file").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [*others[:3], "file", "kept", "new"]


def test_what_is_made_in_a_folder_that_is_there_is_added_to_it(tmp_path: Path) -> None:
    (tmp_path / "there" / "old").mkdir(parents=True)
    (tmp_path / "link").symlink_to("there")

    def fail() -> None:
        with making(tmp_path / "link") as partial:
            (partial / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["old"]
    with making(tmp_path / "link") as partial:
        (partial / "old").mkdir()
        (partial / "old" / "file").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "old" / "file").exists()


def test_room_is_looked_for_before_long_work(tmp_path: Path) -> None:
    require_space(tmp_path / "new" / "folder", 1000, "or go away")
    with pytest.raises(NoSpaceError, match=r"new needs about 1e\+09 GB, and .* GB are free: .*, or go away"):
        require_space(tmp_path / "new", 10**18, "or go away")
    if sys.platform == "linux":
        require_space(Path("/proc/self"), 10**18, "or go away")  # its file system does not tell its size


def test_a_file_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "a" / "b" / "c")
    with pytest.raises(InputError, match="is a folder: name the file"):
        require_writable(tmp_path)
    with pytest.raises(InputError, match=r"b cannot be written: .*file is a file"):
        require_writable(tmp_path / "file" / "a" / "b")


def test_who_writes_more_than_a_pipe_holds_waits_for_its_reader() -> None:
    ours, theirs = os.pipe()
    with ThreadPoolExecutor(1) as pool, os.fdopen(ours, "rb") as reader:
        pipe, content = Path(f"/dev/fd/{theirs}"), bytes(2**20)
        writing = pool.submit(write_atomically, pipe, lambda file: file.write(content))
        assert not wait([writing], timeout=0.1).done
        os.close(theirs)
        assert reader.read() == content


def test_results_do_not_lie_among_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    refuse_inside(tmp_path / "out", tmp_path / "in")
    refuse_inside(tmp_path / "in-out", tmp_path / "in")
    refuse_inside(tmp_path / "x.npy" / "out", tmp_path / "x.npy")
    for out in (tmp_path / "in", tmp_path / "in" / "a" / "b", tmp_path / "link" / "a"):
        with pytest.raises(InputError, match="lies inside .*in, whose images are read"):
            refuse_inside(out, tmp_path / "in")


def test_a_sealed_file_tells_whether_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        read_sealed(path, "kind/1")
    write_sealed(path, "kind/1", b"two\nlines")
    assert read_sealed(path, "kind/1") == b"two\nlines"
    with pytest.raises(DamagedFileError, match="damaged"):
        read_sealed(path, "kind/2")
    for content in (path.read_bytes()[:-1], path.read_bytes() + b"x", b"", b"kind/1"):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="damaged"):
            read_sealed(path, "kind/1")


def test_labels_receipts_and_checkpoints_are_private_under_any_umask(tmp_path: Path) -> None:
    for end in (".marks", ".receipts"):
        (tmp_path / f"old{end}").touch(0o644)
    info = ServiceInfo.model_construct(
        provider="m", model_digest="a" * 32, n_clusters=9, signer="1" * 64, calibration=None
    )
    before = os.umask(0)
    try:
        for name in ("new", "old"):
            ClusterLabels(("a",), np.zeros(1, np.int64), 2, "p").save(tmp_path / f"{name}.json")
            append_line(tmp_path / f"{name}.marks", "{}")
            Journal(tmp_path / f"{name}.receipts", url="https://a.example", info=info).__exit__()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()]
    assert modes == [0o600] * 6
