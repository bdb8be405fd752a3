"""Vectors as samples: arrays in memory, or embeddings in NumPy's files.

Arrays are never copied as a whole: rows are converted to one type, and rows of several domains are brought
together, when they are read.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ucds.data.content import number_rows, require_ids
from ucds.data.parts import Rows
from ucds.data.samples import Samples
from ucds.data.tables import plain_column
from ucds.errors import DamagedFileError, InputError, UserError, brief, one_line, shown
from ucds.math.arrays import FloatArray, IntArray
from ucds.received import open_received

_BLUR = 1e-5  # of the range of a column, by which rounding may move a number
_BLOCK_BYTES = 4 * 2**20
_LARGEST = 1e15
"""Largest number whose squares, summed over a row, fit single precision."""
_UNPACKED, _MOST_PACKED = 2**28, 16  # bytes that any archive may hold; times its length that a larger one may


class VectorSamples(Samples):
    """Vectors (embeddings, tabular rows) as samples, kept without a copy.

    The array is ``(n, d)`` real numbers, possibly memory-mapped, which are checked, or rows of such arrays
    that are known to be finite. Without domains and ids, there is one domain, and the ids are "0", "1", ..
    """

    kind = "embeddings"

    def __init__(
        self,
        array: npt.ArrayLike | Rows,
        domain: IntArray | None = None,
        domain_names: Sequence[str] = ("data",),
        ids: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        checked = array if isinstance(array, Rows) else _checked(array)
        self.rows = checked if isinstance(checked, Rows) else Rows([checked], _type_for([checked]))
        n = len(self.rows)
        super().__init__(
            number_rows(n) if ids is None else ids,
            np.zeros(n, np.int64) if domain is None else np.asarray(domain, np.int64),
            domain_names,
            f"vectors {self.rows.shape[1]}",
        )
        assert self.domain.shape == (n,) == (len(self.ids),)
        if ids is not None:
            require_ids(self.ids)
        self.columns = None if columns is None else tuple(columns)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.ArrayLike]) -> VectorSamples:
        """Join arrays ``(n_d, d)``, one domain each, in alphabetical order of the names."""
        if not arrays:
            raise InputError("There are no arrays; give one array of vectors for each domain.")
        names = tuple(sorted(arrays))
        parts = [_checked(arrays[name], f"The array of domain {brief(name)}") for name in names]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            found = ", ".join(f"{n}: {p.shape[1]}" for n, p in zip(names, parts, strict=True))
            raise InputError(f"The vectors of all domains must have the same length; found {found}.")
        domain = np.repeat(np.arange(len(names)), [len(part) for part in parts])
        return cls(Rows(parts, _type_for(parts)), domain, names)

    def read(self, index: IntArray) -> FloatArray:
        """Return a copy of the vectors at positions ``index``: ``(b, d)`` float32."""
        return self.rows.take(index)


def in_order(samples: Samples, names: Sequence[str] | None, of: str = "the model") -> Samples:
    """Return samples with the columns that a model reads, in its order.

    Case and spaces around a name do not matter, unless names differ in nothing else. If the samples or the
    model have no names of columns, the samples are returned as they are.

    The owner of the names is named in messages by ``of``.
    """
    own = samples.columns
    if own is None or names is None or own == tuple(names):
        return samples
    plain = all(len(set(map(plain_column, each))) == len(each) for each in (own, names))
    place = {plain_column(name) if plain else name: position for position, name in enumerate(own)}
    wanted = {plain_column(name) if plain else name: name for name in names}
    missing = [name for key, name in wanted.items() if key not in place]
    strange = [own[position] for key, position in place.items() if key not in wanted]
    if missing or strange:
        both = (("lacks", missing), ("has", strange))
        differ = [f"{what} {shown(', '.join(map(repr, some)), 60)}" for what, some in both if some]
        raise InputError(f"the columns of the table differ from those of {of}: it {' and '.join(differ)}")
    order, everything = [place[key] for key in wanted], np.arange(len(samples))
    array = samples.read(everything)[:, order]
    return VectorSamples(array, samples.domain, samples.domain_names, samples.ids, names)


def load_vectors(path: Path) -> VectorSamples:
    """Load an ``(n, d)`` array from ``.npy``, or one array per domain from ``.npz``.

    An array of ``.npy`` is memory-mapped, not loaded; its domain is the file's name.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return VectorSamples.from_arrays(read_arrays(path, follow=True))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except DamagedFileError as error:
        raise InputError(f"{error}; write it with numpy.save.") from None
    except UserError as error:
        raise InputError(f"{path}: {error}") from None


def read_arrays(
    path: Path, names: Container[str] | None = None, *, follow: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an ``.npz`` by name, or map the array of an ``.npy`` under the file's name.

    Only the arrays of some ``names`` are wanted, all if ``None``. With ``follow``, the path may be a link.

    Raises:
        OSError: the file cannot be opened.
        DamagedFileError: the file is damaged or of another format, holds Python objects, or unpacks to too
            much.
    """
    with open_received(path, follow=follow) as file:
        length = os.fstat(file.fileno()).st_size
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(opened, np.ndarray):
            return {path.stem: opened}
        with opened:
            wanted = [name for name in opened.files if names is None or name in names]
            entries = [e for e in opened.zip.infolist() if e.filename.removesuffix(".npy") in wanted]
            if sum(entry.file_size for entry in entries) > max(_UNPACKED, _MOST_PACKED * length):
                raise ValueError(f"it unpacks to over {_MOST_PACKED} times its length: use numpy.savez")
            arrays = {name: opened[name] for name in wanted}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a file in the archive is not an array")
        return arrays
    except Exception as error:  # damaged bytes raise nearly anything: TokenError, zlib.error ..
        # NumPy says how to load what is no array, which would run code of the sender.
        reason = "it holds no array" if "pickle" in str(error) else one_line(error, 160)
        raise DamagedFileError(f"{path} is not a readable .npy or .npz file of numbers ({reason})") from None


def _type_for(arrays: Sequence[npt.NDArray[Any]]) -> npt.DTypeLike:
    """Return single precision, or double if single precision would blur differences between rows."""
    for array in arrays:
        seen = array[:: len(array) // 1000 + 1].astype(np.float64)
        if (np.abs(seen - seen.astype(np.float32)) > _BLUR * np.ptp(seen, axis=0)).any():
            return np.float64
    return np.float32


def _checked(values: npt.ArrayLike, what: str = "The array") -> npt.NDArray[Any]:
    """Return values as an array, once they are known to be finite ``(n, d)`` numbers."""
    array: npt.NDArray[Any] = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what} must have shape (n, d), one row per sample, not {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{what} must hold real numbers, not {array.dtype}.")
    step = max(1, _BLOCK_BYTES // (array.shape[1] * 4))
    for start in range(0, len(array), step):  # all may be larger than the memory
        with np.errstate(over="ignore"):  # what is too large for the type becomes infinity
            block = array[start : start + step].astype(np.float32)
        bad = ~(np.abs(block) < _LARGEST).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            finite, where = np.isfinite(array[start + row]).all(), f"(first in row {start + row})"
            if finite:
                raise InputError(f"{what} holds numbers beyond {_LARGEST:g} {where}; make all smaller.")
            raise InputError(f"{what} holds NaN or infinity {where}; remove such rows.")
    return array
