"""Images as samples: pictures in memory, and files that are decoded once and then read from a store.

The content keys of files that were decoded before are remembered, so that the files need not be read again. A
file is taken to be unchanged while its length, time of modification and time of status change are. If this
memory is lost, files are only read once more.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ucds.data.columns import Pictures
from ucds.data.content import KEY_TYPE, Column, content_key, first_of_each, texts_of
from ucds.data.decode import (
    DECODER_VERSION,
    PIXELS_VERSION,
    ByteArray,
    UnusableImageError,
    decode_image,
    to_square,
)
from ucds.data.folders import Scan
from ucds.data.image_files import Stamp, map_ahead, read_image_bytes, stamp
from ucds.data.parts import PartStore
from ucds.data.samples import Samples
from ucds.errors import DamagedFileError, InputError, NoSpaceError, brief, warn, warn_of_skipped
from ucds.files import digest_of, read_sealed, require_space, write_sealed
from ucds.math.arrays import IntArray, processors

DEFAULT_LIMIT_BYTES = 8 * 2**30
Progress = Callable[[int, int], None]

_SEAL = "ucds-known-files/1"
_AHEAD = 64  # images that may wait to be stored
_STEP = 32  # files between two reports of progress
_COPIES_SHOWN = 3


class _Loaded(NamedTuple):
    """Result of one thread for one file; without pixels if the store has them."""

    stamp: Stamp | None
    key: bytes
    pixels: ByteArray | None


class ImageSamples(Samples):
    """Images of one or several domains, ``size`` x ``size`` 8-bit RGB; unusable images are left out.

    Images that are not in the cache yet are decoded first. One store per size serves all data sets. Rows are
    found by the content of the file, whatever its name or folder. When the store is full, it drops rows of
    other data sets, the oldest first; further images are decoded at each reading.

    At most ``limit_bytes`` of decoded images are kept on the disk, 8 GiB if ``None``. The function
    ``progress`` is told how many of the files that have to be decoded are done; it is not called if there are
    none.

    Attributes:
        files: image files that can be used.
        kept: ``(n,)`` ascending positions of the usable files among all that were given.
        skipped: number of files that cannot be used.

    Warns:
        UcdsWarning: for each file that cannot be used (at most 20 are named) and in summary; also of copies.
    """

    kind = "images"
    files: Scan

    def __init__(
        self,
        scan: Scan,
        cache_dir: str | Path,
        *,
        size: int = 256,
        limit_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.size, folder = size, Path(cache_dir) / "images"
        self._store = PartStore(folder, f"images {DECODER_VERSION}", (3, size, size), np.uint8)
        limit = DEFAULT_LIMIT_BYTES if limit_bytes is None else limit_bytes
        root = f"{DECODER_VERSION}|{scan.root.resolve()}".encode("utf-8", "surrogatepass")
        capacity, known = limit // self._store.row_bytes, folder / f"{digest_of(root)[:32]}.known"
        keys, problems = self._bring_up_to_date(scan, known, capacity, progress or (lambda done, total: None))
        good = _usable(scan, problems)
        files, form = scan.take(good), f"images {size} {PIXELS_VERSION}"
        super().__init__(files.ids, files.domain, files.domain_names, form, files.readable_paths)
        self.files, self.keys, self.skipped = files, Column(keys[good]), len(problems)
        self.listed, self.kept = texts_of(scan.ids), good
        self._rows = self._store.rows_of(self.keys)
        _warn_of_copies(self)

    def _bring_up_to_date(
        self, scan: Scan, known_file: Path, capacity: int, progress: Progress
    ) -> tuple[npt.NDArray[np.void], dict[int, UnusableImageError]]:
        """Decode the images that the store lacks; return all keys, and why some files cannot be used."""
        store, keys, is_known = self._store, np.zeros(len(scan), KEY_TYPE), np.zeros(len(scan), bool)
        remembered = _read_known(known_file)
        for position, path in enumerate(scan.paths):
            before, key = remembered.get(path, (None, b""))
            if before is not None and before == stamp(scan.file(position)):
                keys[position], is_known[position] = key, True
        # Files never decoded so far, and files that have lost their row if there is room for it.
        unknown = np.flatnonzero(~is_known)
        lost, free = np.flatnonzero(is_known & (store.rows_of(Column(keys)) < 0)), 0
        if store.writable:
            # Rows of other data sets make room.
            store.make_room(min(len(unknown) + len(lost), capacity), capacity, Column(keys[is_known]))
            free = max(0, capacity - len(store))
        todo = np.sort(np.concatenate([unknown, lost[:free]])).tolist()
        needed = min(len(todo), free) * store.row_bytes
        require_space(store.path, needed, "bound it by UCDS_CACHE_LIMIT, or choose another UCDS_CACHE")
        problems, fresh = dict[int, UnusableImageError](), dict[str, tuple[Stamp, bytes]]()

        def decoded(pool: ThreadPoolExecutor) -> Iterator[tuple[Sequence[bytes], ByteArray]]:
            room = free
            loaded = map_ahead(pool, lambda position: self._load(scan, position), todo, _AHEAD)
            for done, (position, found) in enumerate(zip(todo, loaded, strict=True), 1):
                if isinstance(found, UnusableImageError):
                    problems[position] = found
                else:
                    if found.pixels is not None and room > 0:
                        room -= 1
                        yield [found.key], found.pixels[None]
                    keys[position] = found.key
                    if found.stamp is not None:
                        fresh[scan.paths[position]] = found.stamp, found.key
                if done % _STEP == 0 or done == len(todo):
                    progress(done, len(todo))

        if todo:
            progress(0, len(todo))
            # The image library's own remarks are silenced: what matters of them becomes a warning of ours.
            with ThreadPoolExecutor(processors()) as pool, warnings.catch_warnings(action="ignore"):
                try:
                    store.gather(decoded(pool))
                finally:
                    _save_known(known_file, fresh)
        return keys, problems

    def _load(self, scan: Scan, position: int) -> _Loaded | UnusableImageError:
        """Read and decode one file, or return what is wrong with it."""
        # Taken first: a file that changes while it is read is read again next time.
        path = scan.file(position)
        before = stamp(path)
        try:
            data = read_image_bytes(path)
            key = content_key(data)
            wanted = self._store.rows_of([key])[0] < 0
            return _Loaded(before, key, decode_image(data, self.size, path) if wanted else None)
        except UnusableImageError as error:
            return error

    def read(self, index: IntArray) -> ByteArray:
        """Read the images at positions ``index``: ``(b, 3, size, size)`` uint8."""
        index = np.asarray(index, dtype=np.int64)
        cached = self._rows[index] >= 0
        try:
            stored = self._store.read(self._rows[index[cached]])
        except DamagedFileError:  # another run may have removed them to make room
            self._rows = self._store.rows_of(self.keys)
            return self.read(index)
        if cached.all():
            return stored
        pixels = np.empty((len(index), 3, self.size, self.size), np.uint8)
        pixels[cached] = stored
        with ThreadPoolExecutor(processors()) as pool, warnings.catch_warnings(action="ignore"):
            pixels[~cached] = list(pool.map(self._decode, index[~cached].tolist()))
        return pixels

    def _decode(self, position: int) -> ByteArray:
        path = self.files.file(position)
        try:
            data = read_image_bytes(path)
            if content_key(data) != self.keys[position]:
                raise InputError(f"{path} has changed since it was first read; start the run again.")
            return decode_image(data, self.size, path)
        except UnusableImageError as error:
            raise InputError(f"{path} could be read at first, but no longer: {error.reason}.") from None


def _read_known(path: Path) -> dict[str, tuple[Stamp, bytes]]:
    """Read stamp and content key of each file that was decoded successfully; nothing if they are lost."""
    try:
        entries = json.loads(read_sealed(path, _SEAL))
    except (OSError, DamagedFileError):
        return {}
    return {name: (tuple(mark), bytes.fromhex(key)) for name, (*mark, key) in entries.items()}


def _save_known(path: Path, fresh: Mapping[str, tuple[Stamp, bytes]]) -> None:
    """Add to the remembered keys, if possible; keys that another process overwrites are read again."""
    if fresh:
        known = _read_known(path) | dict(fresh)
        entries = {name: [*mark, key.hex()] for name, (mark, key) in known.items()}
        with suppress(NoSpaceError, OSError):
            write_sealed(path, _SEAL, json.dumps(entries).encode())


def _usable(found: Scan | Pictures, problems: Mapping[int, UnusableImageError]) -> IntArray:
    """Return the positions of images that can be used, at least one per domain; warn of the others."""
    n, good = len(found.domain), np.setdiff1d(np.arange(len(found.domain)), list(problems))
    if len(empty := np.setdiff1d(found.domain, found.domain[good])):
        example = next(problem for i, problem in problems.items() if found.domain[i] == empty[0])
        count, name = int((found.domain == empty[0]).sum()), found.domain_names[empty[0]]
        raise InputError(f"None of the {count:,} files of {brief(name)} can be used ({example}).")
    kinds = Counter(problem.reason.split(" (")[0] for problem in problems.values()).most_common()
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in kinds)
    what = "files" if isinstance(found, Scan) else "images"
    told = f"{len(problems):,} of {n:,} {what} cannot be used: {reasons}."
    warn_of_skipped(list(map(str, problems.values())), told)
    return good


def _warn_of_copies(samples: ImageSamples) -> None:
    first = first_of_each(samples.keys)
    copies = np.flatnonzero(first != np.arange(len(first)))
    if len(copies):
        pairs = [f"{samples.ids[i]} = {samples.ids[first[i]]}" for i in copies[:_COPIES_SHOWN]]
        more = ", .." if len(copies) > _COPIES_SHOWN else ""
        duplicate = "duplicates another" if len(copies) == 1 else "duplicate others"
        told = f"{len(copies):,} of {len(samples):,} images {duplicate}; all are counted: "
        warn(f"{told}{', '.join(pairs)}{more}")


class MemoryImages(Samples):
    """Images in memory, as squares of 8-bit RGB like decoded files; the given pictures are not changed.

    Pictures that cannot be used are left out with the same warnings as files. Attributes: see
    :class:`ImageSamples`.
    """

    kind = "images"

    def __init__(self, found: Pictures, size: int) -> None:
        squares, problems = list[ByteArray](), dict[int, UnusableImageError]()
        with warnings.catch_warnings(action="ignore"):  # remarks of the image library
            for position, image in enumerate(found.pictures):
                try:
                    squares.append(_square(image, size, f"image {found.ids[position]}"))
                except UnusableImageError as error:
                    problems[position] = error
        kept = _usable(found, problems)
        good = found.take(kept)
        super().__init__(good.ids, good.domain, good.domain_names, f"memory {size}")
        self._array, self.skipped = np.stack(squares), len(problems)
        self.listed, self.kept = texts_of(found.ids), kept

    def read(self, index: IntArray) -> ByteArray:
        """Return a copy of the images at positions ``index``: ``(b, 3, size, size)`` uint8."""
        return self._array[np.asarray(index, np.int64)]


def _square(image: object, size: int, name: str) -> ByteArray:
    if isinstance(image, UnusableImageError):
        raise UnusableImageError(name, image.reason)
    if isinstance(image, bytes):
        return decode_image(image, size, name)
    if (
        isinstance(image, np.ndarray)
        and image.dtype == np.uint8
        and image.ndim >= 2
        and image.shape[2:] in ((), (3,), (4,))
    ):
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"{name} is neither a PIL image nor an array (h, w, 3) of uint8")
    return to_square(image, size, name)
