"""Bring the image cache up to date with a folder: decode in parallel, once per content."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ucds.data.ahead import map_ahead
from ucds.data.cache import RowStore
from ucds.data.columns import Keys
from ucds.data.content import KEY_BYTES, content_key
from ucds.data.decode import ByteArray, UnusableImageError, decode_image
from ucds.data.folders import Scan
from ucds.data.manifest import Manifest, Stamp
from ucds.errors import NoSpaceError
from ucds.files import require_space
from ucds.math.arrays import IntArray

Progress = Callable[[int, int], None]

_CHUNK = 32  # images decoded between two writes to the disk
_WORTH_CLEARING = 0.1  # share of the wanted rows that clearing the store must make room for


@dataclass(frozen=True)
class _Loaded:
    """What one thread found out about one file; no pixels if the store has them already."""

    position: int
    stamp: Stamp | None = None
    key: bytes | None = None
    pixels: ByteArray | None = None
    problem: UnusableImageError | None = None


class Filling:
    """One pass over the files that brings the store and the manifest up to date.

    Args:
        scan: files to decode.
        store: decoded images by content key.
        manifest: content keys of the files decoded before.
        size: side of the decoded images in pixels.

    Attributes:
        keys: after ``run``, ``(n, 16)`` content keys of the usable files; zeros for the others.
        known: ``(n,)`` whether each file has a key.
        problems: reason why each of the others cannot be used, by position.
    """

    def __init__(self, scan: Scan, store: RowStore, manifest: Manifest, size: int) -> None:
        self.scan, self.store, self.manifest, self.size = scan, store, manifest, size
        self.problems: dict[int, UnusableImageError] = {}
        self.keys = np.zeros((len(scan), KEY_BYTES), np.uint8)
        self.known = np.zeros(len(scan), dtype=bool)
        for position, path in enumerate(scan.paths):
            self._take(position, manifest.key(path, scan.stamp(position)))

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
            self._make_room(pool)
            todo = self._todo()
            self._require_space(len(todo))
            done = 0
            if len(todo):
                progress(done, len(todo))
            results = map_ahead(pool, self._load, map(int, todo), 2 * _CHUNK)
            while chunk := list(islice(results, _CHUNK)):
                self._keep(chunk)
                done += len(chunk)
                progress(done, len(todo))

    def _require_space(self, images: int) -> None:
        needed = min(images, self._free()) * self.store.row_bytes
        require_space(self.store.path, needed, "bound it by UCDS_CACHE_LIMIT, or choose another --cache")

    def _free(self) -> int:
        return max(0, self.store.capacity - len(self.store))

    def _todo(self) -> IntArray:
        """List files never decoded so far, and files that have lost their row if there is room for it."""
        lost = np.flatnonzero(self.known & (self.store.rows_of(Keys(self.keys)) < 0))
        return np.sort(np.concatenate([self._unknown(), lost[: self._free()]]))

    def _unknown(self) -> IntArray:
        return np.flatnonzero(~self.known)

    def _take(self, position: int, key: bytes | None) -> None:
        self.known[position] = key is not None
        self.keys[position] = np.frombuffer(key or bytes(KEY_BYTES), np.uint8)

    def _make_room(self, pool: ThreadPoolExecutor) -> None:
        """Empty the store if rows of other data sets keep out a good part of this one's."""
        if not self.store.writable:
            return
        wanted = min(len(self.scan), self.store.capacity)
        missing = int((~self.known | (self.store.rows_of(Keys(self.keys)) < 0)).sum())
        if missing <= self._free() or self._free() == self.store.capacity:
            return
        hashed = [key for key in pool.map(self._hash, self._unknown().tolist()) if key is not None]
        keys = np.concatenate([self.keys[self.known], Keys.of(hashed).rows])
        present = int((self.store.rows_of(Keys(keys)) >= 0).sum())
        if wanted - present - self._free() > _WORTH_CLEARING * wanted:
            self.store.clear()

    def _hash(self, position: int) -> bytes | None:
        try:
            return content_key(self.scan.read(position))
        except UnusableImageError:
            return None

    def _load(self, position: int) -> _Loaded:
        path = self.scan.root / self.scan.paths[position]
        before = self.scan.stamp(
            position
        )  # taken first: a file that changes while it is read is read again next time
        try:
            data = self.scan.read(position)
            key = content_key(data)
            if self.store.rows_of([key])[0] >= 0:
                return _Loaded(position, before, key)
            return _Loaded(position, before, key, decode_image(data, self.size, path))
        except UnusableImageError as error:
            return _Loaded(position, problem=error)

    def _keep(self, chunk: Sequence[_Loaded]) -> None:
        fresh = {item.key: item.pixels for item in chunk if item.key and item.pixels is not None}
        if fresh and self._free():
            self.store.append(list(fresh), np.stack(list(fresh.values())))
        entries = []
        for item in chunk:
            self._take(item.position, item.key)
            if item.problem is not None:
                self.problems[item.position] = item.problem
            elif item.key is not None and item.stamp is not None:
                entries.append((self.scan.paths[item.position], item.stamp, item.key))
        try:
            self.manifest.add(entries)
        except OSError as error:
            reason = f"The cache {self.manifest.path} cannot be written ({error.strerror})."
            raise NoSpaceError(reason) from None
