"""Images as samples: decoded once into a store, and read from there afterwards."""

from __future__ import annotations

import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucds.data.ahead import processors
from ucds.data.columns import Column, first_of_each
from ucds.data.content import content_key, fingerprint
from ucds.data.decode import DECODER_VERSION, ByteArray, UnusableImageError, decode_image
from ucds.data.filling import Filling, Progress
from ucds.data.folders import Scan
from ucds.data.known_files import KnownFiles
from ucds.data.part_store import PartStore, default_cache_dir
from ucds.data.samples import Kind
from ucds.errors import InputError, UcdsWarning
from ucds.math.arrays import IntArray

DEFAULT_LIMIT_BYTES = 8 * 2**30

_WARNINGS_SHOWN = 20
_COPIES_SHOWN = 3


class ImageSamples:
    """Images of one or several domains, ``size`` x ``size`` 8-bit RGB; made by :meth:`ImageSamples.open`.

    Attributes:
        files: image files that can be used.
        size: side of the decoded images in pixels.
        skipped: files that cannot be used, each with its reason.
    """

    kind: Kind = "images"

    def __init__(self, filling: Filling, workers: int) -> None:
        scan, problems = filling.scan, filling.problems
        good = np.setdiff1d(np.arange(len(scan)), list(problems))
        _check_domains(scan, good, problems)
        self.files, self.size, self._workers = scan.take(good), filling.size, workers
        self.ids, self.domain, self.domain_names = self.files.ids, self.files.domain, scan.domain_names
        self.keys: Column[bytes] = Column(filling.keys[good])
        self.skipped = tuple(problems[i] for i in sorted(problems))
        self._store, self._rows = filling.store, filling.store.rows_of(self.keys)

    @classmethod
    def open(
        cls,
        scan: Scan,
        cache_dir: str | Path | None = None,
        *,
        size: int = 256,
        limit_bytes: int | None = None,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> ImageSamples:
        """Decode the images that the cache does not have yet, and drop those that cannot be used.

        One store per size serves all data sets. Rows are found by the content of the file, whatever
        its name or folder. When the store is full, further images are decoded at each reading;
        rows of other data sets make room, the oldest first.

        Args:
            scan: files found by a function of :mod:`ucds.data.folders`.
            cache_dir: folder of all caches; the user's cache folder when omitted.
            size: side of the decoded images in pixels.
            limit_bytes: bound of the decoded images on the disk, 8 GiB when omitted; zero keeps none.
            workers: number of threads that decode; one per processor when omitted.
            progress: called as ``progress(done, total)`` with numbers of files that have to be decoded; never
                if there are none.

        Raises:
            InputError: no file of a domain can be used.
            NoSpaceError: the cache cannot be written.

        Warns:
            UcdsWarning: for each file that cannot be used (20 at most are named) and in summary; files are
                copies of others.
        """
        folder = Path(cache_dir or default_cache_dir()) / "images"
        limit = DEFAULT_LIMIT_BYTES if limit_bytes is None else limit_bytes
        store = PartStore(folder, f"images {DECODER_VERSION}", (3, size, size), np.uint8)
        known = KnownFiles(folder, scan.root, str(DECODER_VERSION))
        filling = Filling(scan, store, limit // store.row_bytes, known, size)
        workers = workers or processors()
        filling.run(workers, progress or (lambda done, total: None))
        _warn_of_skipped([filling.problems[i] for i in sorted(filling.problems)], len(scan))
        samples = cls(filling, workers)
        _warn_of_copies(samples)
        return samples

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images, their ids and domains, and of the way of decoding."""
        kind = f"images {self.size} {DECODER_VERSION}"
        return fingerprint(self.keys, self.ids, self.domain, self.domain_names, kind)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: IntArray) -> Tensor:
        """Read the images at positions ``index``: ``(b, 3, size, size)`` uint8.

        Raises:
            InputError: a file that is not in the cache has vanished, changed or become unreadable.
        """
        index = np.asarray(index, dtype=np.int64)
        pixels, cached = self._store.read(self._rows[index])
        missing = index[~cached]
        if len(missing):
            self._rows[missing] = -1  # those that are damaged there are decoded at later readings too
            with ThreadPoolExecutor(self._workers) as pool, warnings.catch_warnings(action="ignore"):
                pixels[~cached] = list(pool.map(self._decode, missing.tolist()))
        return torch.from_numpy(pixels)

    def _decode(self, position: int) -> ByteArray:
        path = self.files.root / self.files.paths[position]
        try:
            data = self.files.read(position)
            if content_key(data) != self.keys[position]:
                raise InputError(f"{path} has changed since it was first read; start the run again.")
            return decode_image(data, self.size, path)
        except UnusableImageError as error:
            raise InputError(f"{path} could be read at first, but no longer: {error.reason}.") from None


def _warn_of_skipped(problems: list[UnusableImageError], total: int) -> None:
    for problem in problems[:_WARNINGS_SHOWN]:
        warnings.warn(f"{problem}; skipped", UcdsWarning, stacklevel=3)
    if problems:
        kinds = Counter(problem.reason.split(" (")[0] for problem in problems).most_common()
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in kinds)
        warnings.warn(f"{len(problems):,} of {total:,} files skipped: {reasons}.", UcdsWarning, stacklevel=3)


def _warn_of_copies(samples: ImageSamples) -> None:
    first = first_of_each(samples.keys)
    copies = np.flatnonzero(first != np.arange(len(first)))
    if len(copies):
        pairs = [f"{samples.ids[i]} = {samples.ids[first[i]]}" for i in copies[:_COPIES_SHOWN]]
        more = ", .." if len(copies) > _COPIES_SHOWN else ""
        message = (
            f"{len(copies):,} of {len(samples):,} images are copies of others, and count twice: "
            f"{', '.join(pairs)}{more}"
        )
        warnings.warn(message, UcdsWarning, stacklevel=3)


def _check_domains(scan: Scan, good: IntArray, problems: dict[int, UnusableImageError]) -> None:
    present = set(scan.domain[good].tolist())
    for d, name in enumerate(scan.domain_names):
        if d not in present:
            example = next(problem for i, problem in sorted(problems.items()) if scan.domain[i] == d)
            count = int((scan.domain == d).sum())
            raise InputError(f"None of the {count:,} files of {name!r} can be used ({example}).")
