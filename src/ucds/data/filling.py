"""Bring the image cache up to date with a folder: decode in parallel, once per content."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ucds.data.ahead import map_ahead
from ucds.data.columns import KEY_TYPE, Column, keys_of
from ucds.data.content import content_key
from ucds.data.decode import ByteArray, UnusableImageError, decode_image
from ucds.data.folders import Scan
from ucds.data.known_files import KnownFiles, Stamp
from ucds.data.part_store import PartStore
from ucds.files import require_space
from ucds.math.arrays import IntArray

Progress = Callable[[int, int], None]

_AHEAD = 64  # images that may wait to be stored
_STEP = 32  # files between two reports of progress


@dataclass(frozen=True)
class _Loaded:
    """What one thread found out about one file; no pixels if the store has them already."""

    position: int
    stamp: Stamp | None
    key: bytes
    pixels: ByteArray | None


class Filling:
    """One pass over the files that brings the store and the known files up to date.

    Args:
        scan: files to decode.
        store: decoded images by content key.
        capacity: largest number of images in the store.
        known: content keys of the files decoded before.
        size: side of the decoded images in pixels.

    Attributes:
        keys: after ``run``, ``(n,)`` content keys of the usable files; zeros for the others.
        problems: reason why each of the others cannot be used, by position.
    """

    def __init__(self, scan: Scan, store: PartStore, capacity: int, known: KnownFiles, size: int) -> None:
        self.scan, self.store, self.size = scan, store, size
        self._capacity, self._known_files = capacity, known
        self.problems: dict[int, UnusableImageError] = {}
        self.keys = np.zeros(len(scan), KEY_TYPE)
        self._known = np.zeros(len(scan), dtype=bool)
        for position, path in enumerate(scan.paths):
            if (key := known.key(path, scan.stamp(position))) is not None:
                self.keys[position], self._known[position] = key, True

    def run(self, workers: int, progress: Progress) -> None:
        """Decode the images that the store lacks.

        Args:
            workers: number of threads.
            progress: called as ``progress(files done, files to decode)``; never if there are none.

        Raises:
            NoSpaceError: the cache cannot be written.
        """
        # The image library's own remarks are silenced: what matters of them becomes one warning of ours.
        with ThreadPoolExecutor(workers) as pool, warnings.catch_warnings(action="ignore"):
            todo = self._todo(pool)
            needed = min(len(todo), self._free) * self.store.row_bytes
            require_space(self.store.path, needed, "bound it by UCDS_CACHE_LIMIT, or choose another --cache")
            if not len(todo):
                return
            try:
                self.store.gather(self._decoded(pool, todo, progress))
            finally:
                self._known_files.save()

    def _todo(self, pool: ThreadPoolExecutor) -> IntArray:
        """List files never decoded so far, and files that have lost their row if there is room for it."""
        unknown = np.flatnonzero(~self._known)
        lost = np.flatnonzero(self._known & (self.store.rows_of(Column(self.keys)) < 0))
        wanted, free = min(len(unknown) + len(lost), self._capacity), self._capacity - len(self.store)
        if wanted > free and self.store.writable:  # rows of other data sets make room, but none of these
            hashed = keys_of([key for key in pool.map(self._hash, unknown.tolist()) if key is not None])
            wanted -= int((self.store.rows_of(hashed) >= 0).sum())
            keep = np.concatenate([self.keys[self._known], hashed.array])
            self.store.make_room(wanted, self._capacity, Column(keep))
        self._free = max(0, self._capacity - len(self.store)) if self.store.writable else 0
        return np.sort(np.concatenate([unknown, lost[: self._free]]))

    def _hash(self, position: int) -> bytes | None:
        try:
            return content_key(self.scan.read(position))
        except UnusableImageError:
            return None

    def _decoded(
        self, pool: ThreadPoolExecutor, todo: IntArray, progress: Progress
    ) -> Iterator[tuple[Sequence[bytes], ByteArray]]:
        """Yield content key and pixels of each image that the store lacks and has room for."""
        progress(0, len(todo))
        for done, item in enumerate(map_ahead(pool, self._load, map(int, todo), _AHEAD), 1):
            if item is not None:
                if item.pixels is not None and self._free > 0:
                    self._free -= 1
                    yield [item.key], item.pixels[None]
                self.keys[item.position] = item.key
                if item.stamp is not None:
                    self._known_files.add(self.scan.paths[item.position], item.stamp, item.key)
            if done % _STEP == 0 or done == len(todo):
                progress(done, len(todo))

    def _load(self, position: int) -> _Loaded | None:
        """Read and decode one file; what cannot be used is noted as a problem."""
        path = self.scan.root / self.scan.paths[position]
        # Taken first: a file that changes while it is read is read again next time.
        before = self.scan.stamp(position)
        try:
            data = self.scan.read(position)
            key = content_key(data)
            known = self.store.rows_of([key])[0] >= 0
            return _Loaded(position, before, key, None if known else decode_image(data, self.size, path))
        except UnusableImageError as error:
            self.problems[position] = error
            return None
