"""The store of parts, killed, shared, filled and damaged."""

import errno
import fcntl
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from ucds.data.content import keys_of
from ucds.data.parts import PartStore, Rows
from ucds.errors import DamagedFileError, NoSpaceError


def key(i: int) -> bytes:
    return i.to_bytes(16, "big")


def value(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (3, 5, 7), dtype=np.uint8)


def values(numbers) -> np.ndarray:
    return np.stack([value(i) for i in numbers])


def keys(numbers) -> list[bytes]:
    return [key(i) for i in numbers]


def open_store(folder: Path, name: str = "images") -> PartStore:
    return PartStore(folder, name, (3, 5, 7), np.uint8)


def put(store: PartStore, numbers) -> np.ndarray:
    store.add(keys(numbers), values(numbers))
    return store.rows_of(keys(numbers))


def mend(store: PartStore, numbers) -> np.ndarray:
    """Make the rows again that a store lacks or that are damaged, as the runs that use it do."""
    for _ in range(len(numbers)):
        found = store.rows_of(keys(numbers))
        if missing := [numbers[i] for i in np.flatnonzero(found < 0)]:
            put(store, missing)
        with suppress(DamagedFileError):  # which is said, and the rows are not found any more
            return read(store, numbers)
    raise AssertionError("every reading loses a part")


def read(store: PartStore, numbers) -> np.ndarray:
    return store.read(store.rows_of(keys(numbers)))


FORK = multiprocessing.get_context("fork")


def in_child(work: Callable[[], object]) -> int | None:
    """Run something in a process of its own; the signal that killed it, or its exit status."""
    child = FORK.Process(target=work)
    child.start()
    child.join()
    return child.exitcode


def test_rows_come_back(tmp_path):
    store = open_store(tmp_path)
    rows = put(store, [5, 6, 7])
    assert (read(store, [7, 5, 5, 6]) == values([7, 5, 5, 6])).all()
    assert store.rows_of(keys([6, 9])).tolist() == [rows[1], -1]
    put(store, [8])
    assert (read(store, [8, 5]) == values([8, 5])).all()
    assert len(store) == 4
    assert (read(open_store(tmp_path), [7, 8]) == values([7, 8])).all()
    assert store.read(np.array([], dtype=np.int64)).shape == (0, 3, 5, 7)
    for name, shape, kind in (
        ("other", (3, 5, 7), np.uint8),
        ("images", (105,), np.uint8),
        ("images", (3, 5, 7), np.int8),
    ):
        assert len(PartStore(tmp_path, name, shape, kind)) == 0


def test_rows_begin_where_those_of_pytorch_do(tmp_path):
    """The last bits of a product may depend on where its arrays begin in the memory."""
    store = open_store(tmp_path)
    store.add(keys(range(9)), values(range(9)))
    rows = Rows([np.ones((9, 5)), np.zeros((4, 5))], np.float32)
    read = [one for n in range(1, 9) for one in (store.read(np.arange(n)), rows.take(np.arange(n)))]
    assert {one.ctypes.data % 64 for one in read} == {0}


def test_what_others_have_added_meanwhile_is_not_written_again(tmp_path):
    store, other = open_store(tmp_path), open_store(tmp_path)

    def work():
        yield keys([1, 2, 3, 2]), values([1, 2, 3, 2])
        put(other, [3, 1])

    store.gather(work())
    assert len(open_store(tmp_path)) == 3
    assert (read(store, [3, 2, 1]) == values([3, 2, 1])).all()
    store.gather([(keys([2, 3]), values([2, 3]))])
    assert len(open_store(tmp_path)) == 3


def test_two_open_stores_see_each_others_rows(tmp_path):
    first, second = open_store(tmp_path), open_store(tmp_path)
    put(first, [1, 2])
    before = put(second, [2, 3])
    first.refresh()
    assert (read(first, [3, 1]) == values([3, 1])).all()
    second.refresh()
    assert second.rows_of(keys([2, 3])).tolist() == before.tolist(), "known rows keep their places"
    oldest = open_store(tmp_path)
    assert oldest.rows_of(keys([1, 2, 3])).tolist() == [0, 1, 3], "of two rows the older one counts"


def test_room_is_made_by_the_oldest_parts_that_are_not_wanted(tmp_path):
    store = open_store(tmp_path)
    for numbers in ([1, 2], [3, 4], [5, 6]):
        put(store, numbers)
    reader = open_store(tmp_path)
    rows = reader.rows_of(keys([3]))
    store.make_room(1, capacity=6, keep=keys_of(keys([2])))
    assert store.rows_of(keys([1, 2, 3, 4, 5, 6])).tolist() == [0, 1, -1, -1, 4, 5]
    with pytest.raises(DamagedFileError, match="damaged or gone"):
        reader.read(rows)
    assert len(open_store(tmp_path)) == 4


@pytest.mark.parametrize(
    ("call", "half"), [*((call, False) for call in range(4, 9)), *((call, True) for call in range(4, 8))]
)
def test_killed_at_any_moment(tmp_path, call, half):
    """The process dies at one of the four steps that write the second of three parts, or at the next one."""

    def fill() -> None:
        calls = 0
        flush, replace = os.fsync, Path.replace

        def die(path: Path | None = None) -> None:
            nonlocal calls
            calls += 1
            if calls == call + 1:
                if half:  # as if the disk had taken a part of the file only
                    newest = max(tmp_path.rglob("*ucds-tmp"), key=lambda p: p.stat().st_mtime_ns)
                    os.truncate(newest, newest.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        def dying_flush(descriptor):
            die()
            flush(descriptor)

        def dying_replace(path, target):
            die()
            return replace(path, target)

        os.fsync, Path.replace = dying_flush, dying_replace
        store = open_store(tmp_path)
        for start in (0, 4, 8):
            put(store, range(start, start + 4))

    assert in_child(fill) == -signal.SIGKILL
    store = open_store(tmp_path)
    rows = store.rows_of(keys(range(12)))
    done = np.flatnonzero(rows >= 0)
    assert len(done) == 4 * (call // 4)
    assert (mend(store, range(12)) == values(range(12))).all()


def test_what_killed_processes_left_long_ago_is_removed(tmp_path):
    store = open_store(tmp_path)
    put(store, [1])
    for name, age in (("old.npy", 2e5), ("new.npy", 0), (".x.npy.0123456789abcdef.ucds-tmp", 2e5)):
        (store.path / name).write_bytes(b"torn")
        os.utime(store.path / name, (time.time() - age,) * 2)
    put(open_store(tmp_path), [2])
    names = {path.name for path in store.path.iterdir()}
    assert "new.npy" in names
    assert not {"old.npy", ".x.npy.0123456789abcdef.ucds-tmp"} & names
    assert len(open_store(tmp_path)) == 2


def test_processes_and_threads_fill_one_store_on_a_disk_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))

    def work(offset: int) -> None:
        store = open_store(tmp_path)
        order = np.roll(np.arange(16), offset)
        for chunk in order.reshape(-1, 4):
            put(store, chunk.tolist())

    def threads(offset: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(offset, offset + 2)))

    processes = [FORK.Process(target=threads, args=(offset,)) for offset in (0, 13, 26)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    store = open_store(tmp_path)
    assert len(store) == 6 * 16
    assert (read(store, range(16)) == values(range(16))).all()


def test_a_full_disk_is_said_in_words(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    put(store, [1])
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoSpaceError, match="No space left on device; free some space"):
        put(store, [2])
    with pytest.raises(NoSpaceError):
        store.gather([(keys([3]), values([3]))])
    monkeypatch.undo()
    assert (mend(store, [2, 1]) == values([2, 1])).all()
    assert len(list(store.path.iterdir())) == 4, "nothing half-written is left"
    (tmp_path / "file").touch()
    with pytest.raises(NoSpaceError, match="cannot be used"):
        open_store(tmp_path / "file" / "cache")


def test_a_damaged_part_is_said_and_removed_and_made_again(tmp_path):
    for numbers in ([0, 1], [2], [3, 4]):
        put(open_store(tmp_path), numbers)
    store = open_store(tmp_path)
    first, second, _ = sorted(store.path.glob("*.npy"))
    for path in (first, second):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert (read(store, [4, 3]) == values([4, 3])).all()
    with pytest.raises(DamagedFileError, match="rows of the cache .* are damaged or gone: run again"):
        read(store, [3, 0, 1])
    assert not first.exists()
    assert store.rows_of(keys(range(5))).tolist() == [-1, -1, 2, 3, 4]
    assert (mend(store, range(5)) == values(range(5))).all()
    assert (mend(open_store(tmp_path), range(5)) == values(range(5))).all()


def test_a_store_that_may_only_be_read_is_used_and_never_written(tmp_path):
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to other users
        put(open_store(Path(place)), range(3))
        folder = open_store(Path(place)).path
        for path in (Path(place), folder):
            path.chmod(0o555)

        def work() -> None:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            store = open_store(Path(place))
            assert not store.writable
            assert (read(store, [2, 0]) == values([2, 0])).all()
            with pytest.raises(NoSpaceError, match="choose a place that you may write to"):
                put(store, [7])
            other = open_store(Path(place), "another kind, whose folder cannot be made")
            assert len(other) == 0
            assert not other.writable

        assert in_child(work) == 0
        for path in (Path(place), folder):
            path.chmod(0o755)
