"""The row store, killed, shared, filled and damaged."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ucds.data import cache
from ucds.data.cache import DamagedRowsError, RowStore, default_cache_dir
from ucds.errors import NoSpaceError, UcdsWarning


def key(i: int) -> bytes:
    return i.to_bytes(16, "big")


def value(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (3, 5, 7), dtype=np.uint8)


def values(numbers) -> np.ndarray:
    return np.stack([value(i) for i in numbers])


def open_store(folder: Path, capacity: int = 100, name: str = "images") -> RowStore:
    return RowStore(folder, name, (3, 5, 7), np.uint8, capacity)


def put(store: RowStore, numbers) -> np.ndarray:
    return store.append([key(i) for i in numbers], values(numbers))


def in_child(work: Callable[[], object]) -> int:
    """Run something in a process of its own; the signal that killed it, or its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_rows_that_another_adds_while_a_store_looks_are_not_overlooked(tmp_path, monkeypatch):
    store, other, read = open_store(tmp_path), open_store(tmp_path), cache.read_rows
    pending = [[1], [2]]

    def read_while_another_adds(*given):
        read(*given)
        if pending:
            numbers = pending.pop()
            put(other, numbers)

    monkeypatch.setattr(cache, "read_rows", read_while_another_adds)
    store.rows_of([key(1), key(2)])
    monkeypatch.undo()
    assert (store.rows_of([key(1), key(2)]) >= 0).all()
    put(store, [1, 2])
    assert len(store) == 2


def test_rows_come_back(tmp_path):
    store = open_store(tmp_path)
    rows = put(store, [5, 6, 7])
    assert (store.read(rows[[2, 0, 0, 1]]) == values([7, 5, 5, 6])).all()
    assert store.rows_of([key(6), key(9)]).tolist() == [rows[1], -1]
    assert len(store) == 3
    again = open_store(tmp_path)
    assert (again.read(again.rows_of([key(7), key(6)])) == values([7, 6])).all()


def test_reading_into_given_memory(tmp_path):
    store = open_store(tmp_path)
    rows = put(store, range(10))
    out = np.empty((4, 3, 5, 7), np.uint8)
    assert store.read(rows[[1, 2, 3, 9]], out) is out
    assert (out == values([1, 2, 3, 9])).all()
    assert store.read(np.array([], dtype=np.int64)).shape == (0, 3, 5, 7)


def test_other_types(tmp_path):
    store = RowStore(tmp_path, "features", (4,), np.float32, 10)
    features = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    rows = store.append([key(i) for i in range(3)], features)
    assert (store.read(rows) == features).all()
    assert store.read(rows).dtype == np.float32


def test_names_and_contents_of_the_files_are_a_format(tmp_path):
    """Rows that were stored before must be found: a mark is a key, and BLAKE2b over key and row."""
    name = hashlib.sha256(b"2|images 1|(3, 2, 2)||u1").hexdigest()[:32]
    (tmp_path / name).mkdir()
    rows = [bytes(range(12)), bytes(range(12, 24))]
    marks = [key(8 + i) + hashlib.blake2b(key(8 + i) + rows[i], digest_size=16).digest() for i in range(2)]
    (tmp_path / name / "rows").write_bytes(b"".join(rows))
    (tmp_path / name / "marks").write_bytes(b"".join(marks))
    store = RowStore(tmp_path, "images 1", (3, 2, 2), np.uint8, 5)
    assert store.rows_of([key(9), key(8)]).tolist() == [1, 0]
    assert store.read(np.array([1])).ravel().tolist() == list(range(12, 24))


def test_rows_of_the_layout_without_digests_are_removed(tmp_path):
    name = hashlib.sha256(b"1|images|(3, 5, 7)||u1").hexdigest()[:32]
    (tmp_path / name).mkdir()
    (tmp_path / name / "rows").write_bytes(bytes(105))
    store = open_store(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [store.path.name]


def test_equal_content_is_stored_once(tmp_path):
    store = open_store(tmp_path)
    first = put(store, [1, 2])
    rows = put(store, [2, 3, 3, 1])
    assert rows.tolist() == [first[1], 2, 2, first[0]]
    assert len(store) == 3


def test_the_store_does_not_outgrow_its_capacity(tmp_path):
    store = open_store(tmp_path, capacity=3)
    assert put(store, range(5)).tolist() == [0, 1, 2, -1, -1]
    assert put(store, [9, 1]).tolist() == [-1, 1]
    assert (store.path / "rows").stat().st_size == 3 * store.row_bytes
    smaller = open_store(tmp_path, capacity=1)
    assert smaller.rows_of([key(2)]).tolist() == [2], "what is there may be used"
    assert put(smaller, [7]).tolist() == [-1]
    larger = open_store(tmp_path, capacity=4)
    assert put(larger, [7, 8]).tolist() == [3, -1]


def test_stores_of_other_keys_shapes_and_types_are_apart(tmp_path):
    stores = [
        open_store(tmp_path),
        open_store(tmp_path, name="other"),
        RowStore(tmp_path, "images", (105,), np.uint8, 9),
        RowStore(tmp_path, "images", (3, 5, 7), np.int8, 9),
    ]
    put(stores[0], [1])
    assert [len(store) for store in stores] == [1, 0, 0, 0]


def test_two_open_stores_see_each_others_rows(tmp_path):
    first, second = open_store(tmp_path), open_store(tmp_path)
    put(first, [1, 2])
    assert put(second, [2, 3]).tolist() == [1, 2]
    assert (first.read(first.rows_of([key(3)])) == value(3)).all()


def test_clearing_leaves_readers_alone(tmp_path):
    store, reader = open_store(tmp_path), open_store(tmp_path)
    rows = put(store, [1, 2])
    store.clear()
    assert len(store) == 0
    assert store.rows_of([key(1)]).tolist() == [-1]
    put(store, [3])
    assert (reader.read(rows) == values([1, 2])).all()
    assert len(open_store(tmp_path)) == 1


@pytest.mark.parametrize("call", range(9))
@pytest.mark.parametrize("half", [False, True], ids=["before", "half way"])
def test_killed_at_any_moment(tmp_path, call, half):
    """Three appends are three times write, flush, mark; the process dies before or within each."""

    def fill() -> None:
        calls = 0
        write, flush = os.pwrite, os.fsync

        def dying_write(descriptor, data, offset):
            nonlocal calls
            calls += 1
            if calls == call + 1:
                if half:
                    write(descriptor, data[: len(data) // 2 + 5], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return write(descriptor, data, offset)

        def dying_flush(descriptor):
            nonlocal calls
            calls += 1
            if calls == call + 1:
                os.kill(os.getpid(), signal.SIGKILL)
            flush(descriptor)

        os.pwrite, os.fsync = dying_write, dying_flush
        store = open_store(tmp_path)
        for start in (0, 4, 8):
            put(store, range(start, start + 4))

    assert in_child(fill) == -signal.SIGKILL
    store = open_store(tmp_path)
    rows = store.rows_of([key(i) for i in range(12)])
    done = np.flatnonzero(rows >= 0)
    assert len(done) >= 4 * (call // 3)
    if len(done):
        assert (store.read(rows[done]) == values(done)).all()
    rows = put(store, range(12))
    assert (store.read(rows) == values(range(12))).all()
    assert sorted(rows) == list(range(12))


def test_processes_and_threads_fill_one_store(tmp_path):
    def work(offset: int) -> None:
        store = open_store(tmp_path)
        order = np.roll(np.arange(40), offset)
        for chunk in order.reshape(-1, 4):
            put(store, chunk.tolist())

    def threads(offset: int) -> None:
        workers = [threading.Thread(target=work, args=(offset + i,)) for i in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    children = []
    for offset in (0, 13, 26):
        child = os.fork()
        if child == 0:
            threads(offset)
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    store = open_store(tmp_path)
    rows = store.rows_of([key(i) for i in range(40)])
    assert sorted(rows) == list(range(40)) == list(range(len(store)))
    assert (store.read(rows) == values(range(40))).all()


def test_a_full_disk_is_said_in_words(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    put(store, [1])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.os, "pwrite", full)
    with pytest.raises(NoSpaceError, match="No space left on device"):
        put(store, [2])
    monkeypatch.undo()
    assert (store.read(put(store, [2, 1])) == values([2, 1])).all()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NoSpaceError, match="cannot be used"):
        open_store(tmp_path / "file" / "cache")


def spoil(path: Path, place: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_damaged_row_is_found_said_once_and_made_again(tmp_path):
    rows = put(open_store(tmp_path), range(5))
    store = open_store(tmp_path)
    spoil(store.path / "rows", 2 * store.row_bytes + 7)
    spoil(store.path / "rows", 4 * store.row_bytes + 7)
    out = np.empty((5, 3, 5, 7), np.uint8)
    order = rows[[4, 3, 2, 1, 0]]
    with warnings.catch_warnings(record=True, action="always") as said:
        with pytest.raises(DamagedRowsError, match="2 rows of the cache") as error:
            store.read(order, out)
        with pytest.raises(DamagedRowsError):
            store.read(order)
    (once,) = said
    assert once.category is UcdsWarning
    assert "are damaged and are made again" in str(once.message)
    assert error.value.positions.tolist() == [0, 2]
    assert (out[[1, 3, 4]] == values([3, 1, 0])).all()
    assert put(store, [4, 1, 2]).tolist() == [4, 1, 2]
    assert (store.read(order) == values([4, 3, 2, 1, 0])).all()
    assert (open_store(tmp_path).read(order) == values([4, 3, 2, 1, 0])).all()


def test_a_row_that_another_process_mended_is_read(tmp_path):
    rows = put(open_store(tmp_path), range(3))
    first, second = open_store(tmp_path), open_store(tmp_path)
    spoil(first.path / "rows", 0)
    for store in (first, second):
        with pytest.warns(UcdsWarning, match="damaged"):
            assert store.find_damaged(rows).tolist() == [0]
    put(first, [0])
    assert (second.read(rows) == values(range(3))).all()


@pytest.mark.parametrize("name", ["rows", "marks"])
@pytest.mark.parametrize("left", [0, 10, 150])
@pytest.mark.filterwarnings("ignore:rows of the cache")
def test_a_truncated_store_mends_itself(tmp_path, name, left):
    put(open_store(tmp_path), range(6))
    store = open_store(tmp_path)
    os.truncate(store.path / name, left)
    known = store.rows_of([key(i) for i in range(6)])
    store.find_damaged(known[known >= 0])
    put(store, range(6))
    again = open_store(tmp_path)
    assert (again.read(again.rows_of([key(i) for i in range(6)])) == values(range(6))).all()


@pytest.mark.parametrize("place", range(0, 6 * 32, 7))
@pytest.mark.filterwarnings("ignore:rows of the cache")
def test_a_damaged_mark_never_gives_another_rows_values(tmp_path, place):
    put(open_store(tmp_path), range(6))
    spoil(open_store(tmp_path).path / "marks", place)
    store = open_store(tmp_path)
    known = store.rows_of([key(i) for i in range(6)])
    bad = set(store.find_damaged(np.maximum(known, 0)).tolist()) | set(np.flatnonzero(known < 0).tolist())
    assert place // 32 in bad
    assert (store.read(put(store, range(6))) == values(range(6))).all()


def as_nobody(work: Callable[[], object]) -> int:
    """Run something in a process of a user without rights; its exit status."""

    def unprivileged() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    return in_child(unprivileged)


def test_a_store_that_may_only_be_read_is_used(tmp_path):
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to other users
        put(open_store(Path(place)), range(3))
        folder = open_store(Path(place)).path
        for path in (Path(place), folder):
            path.chmod(0o555)
        for path in folder.iterdir():
            path.chmod(0o444)

        def work() -> None:
            store = open_store(Path(place))
            assert not store.writable
            assert store.capacity == 3
            assert put(store, [2, 7]).tolist() == [2, -1]
            assert (store.read(np.arange(3)) == values(range(3))).all()

        assert as_nobody(work) == 0
        for path in (Path(place), folder):
            path.chmod(0o755)


def test_files_are_given_back(tmp_path):
    if not Path("/proc/self/fd").exists():
        pytest.skip("no list of open files on this system")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        put(open_store(tmp_path), [1])
    store = open_store(tmp_path)
    store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_the_default_folder_is_the_users():
    assert default_cache_dir().name == "ucds"


@pytest.mark.filterwarnings("ignore:rows of the cache")
def test_any_changed_bit_is_found_and_mended(tmp_path):
    put(open_store(tmp_path), range(6))
    folder, generator = open_store(tmp_path).path, random.Random(0)
    for _ in range(200):
        path = folder / generator.choice(("rows", "rows", "marks"))
        content = bytearray(path.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        store = open_store(tmp_path, capacity=1000)
        known = store.rows_of([key(i) for i in range(6)])
        store.find_damaged(known[known >= 0])
        assert (store.read(put(store, range(6))) == values(range(6))).all()
