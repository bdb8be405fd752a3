"""Vectors as samples: arrays in memory, or embeddings in NumPy's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ucds.data.array_files import read_arrays
from ucds.data.content import FloatArray, IntArray, content_key, fingerprint
from ucds.errors import DamagedFileError, InputError, UserError

_CHUNK_BYTES = 32 * 2**20
_LARGEST = 1e15
"""The squares of larger numbers, summed over a row, do not fit single precision."""


class VectorSamples:
    """Vectors (embeddings, tabular rows) as samples, kept without a copy.

    Args:
        array: ``(n, d)`` float32, possibly memory-mapped; other real types are converted (a copy).
        domain: ``(n,)`` positions in ``domain_names``; all samples in the first domain when omitted.
        domain_names: one name per domain.
        ids: one id per row; "0", "1", .. when omitted.

    Raises:
        InputError: the array is empty, not two-dimensional, not numeric or holds NaN or infinity;
            ids are not unique, or domains and names do not fit.
    """

    def __init__(
        self,
        array: npt.ArrayLike,
        domain: IntArray | None = None,
        domain_names: Sequence[str] = ("data",),
        ids: Sequence[str] | None = None,
    ) -> None:
        self.array = _as_float32(array)
        n = len(self.array)
        self.domain = np.zeros(n, np.int64) if domain is None else np.asarray(domain, np.int64)
        self.domain_names = tuple(domain_names)
        self.ids = tuple(str(i) for i in range(n)) if ids is None else tuple(ids)
        if self.domain.shape != (n,) or len(self.ids) != n:
            raise InputError(
                f"{n} vectors need {n} domains and {n} ids, not {self.domain.shape} and {len(self.ids)}."
            )
        if len(set(self.ids)) != n:
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
        parts = [_as_float32(arrays[name], f"The array of domain {name!r}") for name in names]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            found = ", ".join(f"{n}: {p.shape[1]}" for n, p in zip(names, parts, strict=True))
            raise InputError(f"The vectors of all domains must have the same length; found {found}.")
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        domain = np.repeat(np.arange(len(parts), dtype=np.int64), [len(part) for part in parts])
        return cls(array, domain, names)

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """Content key of each row."""
        return tuple(content_key(np.ascontiguousarray(row).data.cast("B")) for row in self.array)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vectors, ids and domains."""
        kind = f"vectors {self.array.shape[1]}"
        return fingerprint(self.keys, self.ids, self.domain, self.domain_names, kind)

    def __len__(self) -> int:
        return len(self.array)

    def read(self, index: IntArray) -> Tensor:
        """Return a copy of the vectors at positions ``index``: ``(b, d)`` float32."""
        return torch.from_numpy(np.asarray(self.array[np.asarray(index, np.int64)]))


def load_vectors(path: str | Path) -> VectorSamples:
    """Load an ``(n, d)`` array from ``.npy``, or one array per domain from ``.npz``.

    A ``.npy`` file of float32 values is memory-mapped, not loaded; its domain is the file's name.

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


def _as_float32(values: npt.ArrayLike, what: str = "The array") -> FloatArray:
    """Check that values are finite `(n, d)` numbers; float32 arrays pass through without a copy."""
    array: npt.NDArray[Any] = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what} must have shape (n, d), one row per sample, not {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{what} must hold real numbers, not {array.dtype}.")
    with np.errstate(over="ignore"):  # too large for float32: found as infinity below
        array = array.astype(np.float32, copy=False)
    step = max(1, _CHUNK_BYTES // (array.shape[1] * 4))
    for start in range(0, len(array), step):  # in pieces: the array may be larger than the memory
        bad = ~(np.abs(array[start : start + step]) < _LARGEST).all(axis=1)
        if bad.any():
            row = start + int(bad.argmax())
            if np.isfinite(array[row]).all():
                raise InputError(
                    f"{what} holds numbers beyond {_LARGEST:g} (first in row {row}); make all smaller."
                )
            raise InputError(f"{what} holds NaN or infinity (first in row {row}); remove such rows.")
    return array
