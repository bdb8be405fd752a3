"""Vectors as samples: arrays in memory, or embeddings in NumPy's files.

Arrays are never copied as a whole: rows are converted to float32, and rows of several domains are brought
together, when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucds.data.array_files import read_arrays
from ucds.data.columns import Keys, RowIds, domains_of, first_repeated, pack
from ucds.data.content import KEY_BYTES, content_key, fingerprint
from ucds.data.samples import Kind
from ucds.errors import DamagedFileError, InputError, UserError
from ucds.math.arrays import FloatArray, IntArray

_BLOCK_BYTES = 4 * 2**20
_LARGEST = 1e15
"""The squares of larger numbers, summed over a row, do not fit single precision."""


class Rows:
    """Rows of one or several arrays, one array after the other; they are converted to float32 when read.

    Args:
        parts: ``(n_i, d)`` arrays of real numbers with one ``d``, possibly memory-mapped.

    Attributes:
        parts: these arrays.
        shape: number of all rows, and their width.
    """

    def __init__(self, parts: Sequence[npt.NDArray[Any]]) -> None:
        self.parts = list(parts)
        self._ends = np.cumsum([len(part) for part in self.parts])
        self.shape = int(self._ends[-1]), int(self.parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, index: IntArray) -> FloatArray:
        """Return a copy of the rows at positions ``index``: ``(b, d)`` float32."""
        index = np.asarray(index, np.int64)
        if len(self.parts) == 1:
            return _single(self.parts[0][index])
        out = np.empty((len(index), self.shape[1]), np.float32)
        of_part = np.searchsorted(self._ends, index, side="right")
        for number in np.unique(of_part):
            here, part = of_part == number, self.parts[number]
            out[here] = _single(part[index[here] - self._ends[number] + len(part)])
        return out

    def blocks(self) -> Iterator[FloatArray]:
        """Return an iterator over all rows, some megabytes at a time."""
        for part in self.parts:
            yield from _blocks(part)


class VectorSamples:
    """Vectors (embeddings, tabular rows) as samples, kept without a copy.

    Args:
        array: ``(n, d)`` real numbers, possibly memory-mapped, or :class:`Rows` of such numbers.
        domain: ``(n,)`` positions in ``domain_names``; all samples in the first domain when omitted.
        domain_names: one name per domain.
        ids: one id per row; "0", "1", .. when omitted.

    Raises:
        InputError: the array is empty, not two-dimensional, not numeric or holds NaN or infinity;
            ids are not unique, or domains and names do not fit.
    """

    kind: Kind = "embeddings"
    files: None = None

    def __init__(
        self,
        array: npt.ArrayLike | Rows,
        domain: IntArray | None = None,
        domain_names: Sequence[str] = ("data",),
        ids: Sequence[str] | None = None,
    ) -> None:
        self.rows = array if isinstance(array, Rows) else Rows([_checked(array)])
        n = len(self.rows)
        self.domain = domains_of([n]) if domain is None else np.asarray(domain, np.int64)
        self.domain_names = tuple(domain_names)
        self.ids = RowIds(n) if ids is None else pack(ids)
        if self.domain.shape != (n,) or len(self.ids) != n:
            raise InputError(
                f"{n} vectors need {n} domains and {n} ids, not {self.domain.shape} and {len(self.ids)}."
            )
        if first_repeated(self.ids) is not None:
            raise InputError("The ids of vectors must all be different.")
        if isinstance(domain_names, str) or len(set(domain_names)) != len(self.domain_names):
            raise InputError(f"Domain names must be a list of different names, not {domain_names!r}.")
        if set(np.unique(self.domain).tolist()) != set(range(len(self.domain_names))):
            names = f"{len(self.domain_names)} domains ({', '.join(self.domain_names)})"
            raise InputError(f"Each of the {names} needs at least one sample.")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.ArrayLike]) -> VectorSamples:
        """Join arrays ``(n_d, d)``, one domain each, in alphabetical order of the names."""
        if not arrays:
            raise InputError("There are no arrays; give one array of vectors for each domain.")
        names = tuple(sorted(arrays))
        parts = [_checked(arrays[name], f"The array of domain {name!r}") for name in names]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            found = ", ".join(f"{n}: {p.shape[1]}" for n, p in zip(names, parts, strict=True))
            raise InputError(f"The vectors of all domains must have the same length; found {found}.")
        return cls(Rows(parts), domains_of([len(part) for part in parts]), names)

    @cached_property
    def keys(self) -> Sequence[bytes]:
        """Content key of each row."""
        keys, width, first = np.empty((len(self), KEY_BYTES), np.uint8), 4 * self.rows.shape[1], 0
        for block in self.rows.blocks():
            data = np.ascontiguousarray(block).data.cast("B")
            joined = b"".join(content_key(data[at : at + width]) for at in range(0, len(data), width))
            keys[first : first + len(block)] = np.frombuffer(joined, np.uint8).reshape(-1, KEY_BYTES)
            first += len(block)
        return Keys(keys)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vectors, ids and domains."""
        kind = f"vectors {self.rows.shape[1]}"
        return fingerprint(self.keys, self.ids, self.domain, self.domain_names, kind)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: IntArray) -> Tensor:
        """Return a copy of the vectors at positions ``index``: ``(b, d)`` float32."""
        return torch.from_numpy(self.rows.take(index))


def load_vectors(path: str | Path) -> VectorSamples:
    """Load an ``(n, d)`` array from ``.npy``, or one array per domain from ``.npz``.

    The arrays are memory-mapped, not loaded, unless the ``.npz`` file is compressed. The domain of a ``.npy``
    file is the file's name.

    Raises:
        InputError: there is no such file, it cannot be opened, it is not in NumPy's format, or it holds
            Python objects or values that :class:`VectorSamples` refuses.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        arrays = read_arrays(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except DamagedFileError as error:
        raise InputError(f"{error}; write it with numpy.save.") from None
    try:
        return VectorSamples.from_arrays(arrays)
    except UserError as error:
        raise InputError(f"{path}: {error}") from None


def _checked(values: npt.ArrayLike, what: str = "The array") -> npt.NDArray[Any]:
    """Return values as an array, once they are known to be finite ``(n, d)`` numbers."""
    array: npt.NDArray[Any] = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what} must have shape (n, d), one row per sample, not {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{what} must hold real numbers, not {array.dtype}.")
    start = 0
    for block in _blocks(array):
        bad = ~(np.abs(block) < _LARGEST).all(axis=1)
        if bad.any():
            row = start + int(bad.argmax())
            if np.isfinite(block[bad.argmax()]).all():
                raise InputError(
                    f"{what} holds numbers beyond {_LARGEST:g} (first in row {row}); make all smaller."
                )
            raise InputError(f"{what} holds NaN or infinity (first in row {row}); remove such rows.")
        start += len(block)
    return array


def _blocks(array: npt.NDArray[Any]) -> Iterator[FloatArray]:
    """Return an iterator over the rows of an array, in pieces: the array may be larger than the memory."""
    step = max(1, _BLOCK_BYTES // (array.shape[1] * 4))
    for start in range(0, len(array), step):
        yield _single(array[start : start + step])


def _single(rows: npt.NDArray[Any]) -> FloatArray:
    """Convert rows to float32; what is too large for it becomes infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(rows, dtype=np.float32)
