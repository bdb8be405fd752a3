"""Classes read from folder names: for evaluation after training, and for nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ucds.data.samples import Listing
from ucds.math.arrays import IntArray


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The classes of samples."""

    names: tuple[str, ...]  # of the classes, sorted
    classes: IntArray  # `(n,)` int64 positions in the names, in the order of the samples

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.names)


def read_ground_truth(samples: Listing) -> GroundTruth | None:
    """Read the class of each sample from its folder.

    The class is the first folder that not all files of the domain share: in ``amazon/images/bike/x.jpg``
    the folders ``amazon`` and ``images`` are shared, so the class is ``bike``. If all files of a domain lie
    in one folder, that folder is their class, unless it is the domain's folder. Give all samples of a data
    set: in a part with one class, the class folder looks like a wrapper.

    Returns:
        ``None`` if there are fewer than two classes, or if a file lies outside the class folders.
    """
    paths = samples.readable_paths
    if not any("/" in name for name in paths):  # rows of an array lie in no folder
        return None
    folders = np.empty(len(paths), object)
    for d, name in enumerate(samples.domain_names):
        positions = np.flatnonzero(samples.domain == d)
        folders[positions] = _classes_of_domain([paths[i] for i in positions], name)
    inside = [folder for folder in folders if folder is not None]
    names = tuple(sorted(set(inside)))
    if len(names) < 2 or len(inside) < len(folders):
        return None
    number = {folder: k for k, folder in enumerate(names)}
    return GroundTruth(names, np.array([number[folder] for folder in inside], dtype=np.int64))


def _classes_of_domain(paths: Sequence[str], domain_name: str) -> list[str | None]:
    folders = [sample.split("/")[:-1] for sample in paths]
    shared = os.path.commonprefix(folders)  # noqa: RUF071  (of lists, not of letters)
    if all(len(parts) == len(shared) for parts in folders):  # all in one folder: is it a class?
        own = bool(shared) and shared[-1] != domain_name
        return [shared[-1] if own else None] * len(paths)
    return [parts[len(shared)] if len(parts) > len(shared) else None for parts in folders]
