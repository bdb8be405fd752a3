"""Reads files of NumPy arrays, whatever is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ucds.errors import DamagedFileError, one_line


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an archive by their names, or a single array under the name of its file.

    A single array is mapped into memory, not loaded.

    Args:
        path: file in one of NumPy's formats, ``.npy`` or ``.npz``.

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
            arrays = {name: opened[name] for name in opened.files}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a file in the archive is not an array")
        return arrays
    except Exception as error:  # damaged bytes raise nearly anything: TokenError, zlib.error ..
        raise DamagedFileError(
            f"{path} is not a readable .npy or .npz file of numbers ({one_line(error, 160)})"
        ) from None
