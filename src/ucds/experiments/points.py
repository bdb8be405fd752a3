"""Keeps the points of a t-SNE figure beside the records, so that drawing needs neither data nor model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError, InputError
from ucds.experiments.grid import Cell
from ucds.experiments.pipeline import Outcome
from ucds.files import write_atomically
from ucds.math.plane import PlanePoints, to_plane
from ucds.training.prediction import encode
from ucds.training.runtime import Runtime


def save_points(
    folder: Path, cell: Cell, outcome: Outcome, runtime: Runtime, classes: NDArray[np.int64]
) -> str:
    """Embed the encoder's outputs and the prototypes of an outcome in the plane, and write the points.

    Returns:
        Name of the file, which the cell gives it.

    Raises:
        InputError: the method keeps no encoder.
    """
    if outcome.model is None:
        raise InputError(f"a figure of features cannot show {cell.method}: it keeps no encoder")
    model = outcome.model.to(runtime.device)
    features = encode(model, outcome.data.samples, outcome.data.view, runtime).cpu().numpy()
    prototypes = model.prototypes.detach().cpu().numpy()
    points = to_plane(features, prototypes, classes, cell.seed)
    parts = (cell.dataset, cell.target, cell.condition.subset, cell.method, str(cell.seed))
    own = "" if cell.settings is None else cell.settings.hash
    name = "-".join(re.sub(r"\W+", "_", part) for part in (*parts, own) if part)
    arrays: dict[str, Any] = {
        "samples": points.samples.astype(np.float32),
        "prototypes": points.prototypes.astype(np.float32),
        "classes": points.classes.astype(np.int16),
        "total": np.array(points.total),
    }
    write_atomically(folder / f"{name}.npz", lambda file: np.savez_compressed(file, **arrays))
    return f"{name}.npz"


def read_points(folder: Path, name: str) -> PlanePoints:
    """Read what :func:`save_points` wrote.

    Raises:
        DamagedFileError: the file is missing or damaged.
    """
    try:
        stored = read_arrays(folder / name)
        return PlanePoints(
            stored["samples"].astype(np.float64),
            stored["prototypes"].astype(np.float64),
            stored["classes"].astype(np.int64),
            int(stored["total"]),
        )
    except (OSError, DamagedFileError, KeyError, ValueError, TypeError):  # TypeError: an array as a number
        raise DamagedFileError(f"{folder / name} is missing or damaged: run the benchmark again") from None
