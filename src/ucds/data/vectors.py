"""Vectors as samples: arrays in memory, or embeddings in NumPy's files.

Arrays are never copied as a whole: rows are converted to one type, and rows of several domains are brought
together, when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucds.data.content import first_repeated, number_rows
from ucds.data.parts import Rows
from ucds.data.samples import Samples
from ucds.errors import DamagedFileError, InputError, UserError, one_line
from ucds.math.arrays import IntArray

_BLUR = 1e-5  # of the range of a column, by which rounding may move a number
_BLOCK_BYTES = 4 * 2**20
_LARGEST = 1e15
"""The squares of larger numbers, summed over a row, do not fit single precision."""


class VectorSamples(Samples):
    """Vectors (embeddings, tabular rows) as samples, kept without a copy.

    Args:
        array: ``(n, d)`` real numbers, possibly memory-mapped, or rows of such arrays that are known to be
            finite.
        domain: ``(n,)`` positions in ``domain_names``; all samples in the first domain when omitted.
        domain_names: one name per domain, each of which has a sample.
        ids: one id per row; "0", "1", .. when omitted.

    Raises:
        InputError: the array is empty, not two-dimensional, not numeric or holds NaN or infinity; or ids are
            not unique.
    """

    kind = "embeddings"

    def __init__(
        self,
        array: npt.ArrayLike | Rows,
        domain: IntArray | None = None,
        domain_names: Sequence[str] = ("data",),
        ids: Sequence[str] | None = None,
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
        if ids is not None and first_repeated(self.ids) is not None:
            raise InputError("The ids of vectors must all be different.")

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
        domain = np.repeat(np.arange(len(names)), [len(part) for part in parts])
        return cls(Rows(parts, _type_for(parts)), domain, names)

    def read(self, index: IntArray) -> Tensor:
        """Return a copy of the vectors at positions ``index``: ``(b, d)``."""
        return torch.from_numpy(self.rows.take(index))


def load_vectors(path: Path) -> VectorSamples:
    """Load an ``(n, d)`` array from ``.npy``, or one array per domain from ``.npz``.

    An array of ``.npy`` is memory-mapped, not loaded; its domain is the file's name.
    """
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        return VectorSamples.from_arrays(read_arrays(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except DamagedFileError as error:
        raise InputError(f"{error}; write it with numpy.save.") from None
    except UserError as error:
        raise InputError(f"{path}: {error}") from None


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an ``.npz`` by their names, or map that of an ``.npy`` under the name of its file.

    Raises:
        OSError: the file cannot be opened.
        DamagedFileError: it is of another format, damaged, or holds Python objects.
    """
    with path.open("rb"):  # an error of the system says more than the library's
        pass
    try:
        opened = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(opened, np.ndarray):
            return {path.stem: opened}
        with opened:
            arrays = dict(opened)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a file in the archive is not an array")
        return arrays
    except Exception as error:  # damaged bytes raise nearly anything: TokenError, zlib.error ..
        raise DamagedFileError(
            f"{path} is not a readable .npy or .npz file of numbers ({one_line(error, 160)})"
        ) from None


def _type_for(arrays: Sequence[npt.NDArray[Any]]) -> npt.DTypeLike:
    """Return single precision, or double where single precision would blur the differences of rows."""
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
            finite, where = np.isfinite(block[row]).all(), f"(first in row {start + row})"
            if finite:
                raise InputError(f"{what} holds numbers beyond {_LARGEST:g} {where}; make all smaller.")
            raise InputError(f"{what} holds NaN or infinity {where}; remove such rows.")
    return array
