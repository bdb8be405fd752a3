"""Centres the features of each group of samples, such as those of one scanner, on the group's own mean.

The mean of a group is subtracted from its features, and the mean of all training samples is added, so that
all groups lie in one place. A group with too few samples to estimate a mean is not moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import sparse

from ucds.data.about import About, KeptAbout, find_about
from ucds.data.dataset import Dataset
from ucds.data.images import MemoryImages
from ucds.data.samples import Samples
from ucds.data.vectors import read_arrays
from ucds.encoders.encoder import Encoder
from ucds.errors import DamagedFileError, InputError, shown
from ucds.files import parse_json, write_atomically
from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.spaces import unit_rows
from ucds.received import require_few
from ucds.training.features import frozen_features
from ucds.training.loaded import FEWEST_TO_CENTRE, Model
from ucds.training.options import Compute
from ucds.training.run_folder import ABOUT_FILE, CENTRES_FILE

_BLOCK = 4096  # samples that are read at a time


class MovedSamples(Samples):
    """Features of samples; when they are read, each is moved by the shift of its group.

    Ids and contents are those of the samples. The features may be vectors of the user's own.
    """

    def __init__(self, samples: Samples, features: Samples, shifts: DoubleArray, groups: IntArray) -> None:
        names, paths = samples.domain_names, samples.readable_paths
        super().__init__(samples.ids, samples.domain, names, samples.form(), paths)
        self.kind, self.columns, self.keys = features.kind, samples.columns, samples.keys
        self._features, self._shifts, self._groups = features, shifts.astype(np.float32), groups
        self._directed = samples.kind != "embeddings"  # of features the direction counts

    def read(self, index: IntArray) -> FloatArray:
        """Read the moved features ``(b, d)`` of the samples at positions ``index``."""
        rows: FloatArray = self._features.read(index)
        return (unit_rows(rows) if self._directed else rows) + self._shifts[self._groups[index]]


@dataclass(frozen=True, eq=False)
class Centring:
    """Means on which the groups of a training were centred."""

    column: str  # which names the group of each sample
    names: tuple[str, ...]  # of the groups
    means: DoubleArray  # (G, d) mean of each group; that of all samples where a group is too small
    mean: DoubleArray  # (d,) mean of all samples
    share: float = 0.0  # of the variance of the features that the means made up, known in the training alone

    @classmethod
    def fit(cls, column: str, texts: Sequence[str], samples: Samples, features: Samples) -> Centring:
        """Compute the means of the groups that the ``texts`` of samples name, two of which must be large."""
        names, groups = _number(texts)
        counts, (sums, squares) = np.bincount(groups), _sum_up(samples, features, groups)
        large, mean = counts >= FEWEST_TO_CENTRE, sums.sum(0) / len(groups)
        if large.sum() < 2:
            raise InputError(
                f"`centre_by` {shown(column, 40)} needs two groups of at least {FEWEST_TO_CENTRE} samples, "
                f"but it has {large.sum()}: name a column with larger groups"
            )
        means = np.where(large[:, None], sums / counts[:, None], mean)
        between = (counts * np.square(means - mean).sum(1)).sum()
        share = float(between / max(squares - len(groups) * np.square(mean).sum(), 1e-12))
        return cls(column, names, means, mean, share)

    @property
    def sentence(self) -> str:
        """Sentence that tells the person what was done."""
        moved = int((self.means != self.mean).any(1).sum())
        return (
            f"centred by {shown(self.column, 40)}: the means of {moved} of {len(self.names):,} groups "
            f"were subtracted; their differences made up {self.share:.0%} of the variance of the features"
        )

    def texts_in(self, about: About) -> list[str]:
        """Return the group of each sample, from what is known about them."""
        if self.column not in about:
            told = f"the run was centred by {shown(self.column, 40)}, which nothing tells of these samples"
            raise InputError(f"{told}: give a table with this column as `about`")
        return about[self.column]

    def extend(self, texts: Sequence[str], samples: Samples, features: Samples) -> Centring:
        """Add the groups that are new since the training; each gets its own mean, if it is large enough."""
        names, groups = _number(texts)
        counts = np.bincount(groups)
        unseen = [g for g, name in enumerate(names) if name not in self.names]
        if not (counts[unseen] >= FEWEST_TO_CENTRE).any():
            return self
        sums = _sum_up(samples, features, groups)[0]
        unseen = [g for g in unseen if counts[g] >= FEWEST_TO_CENTRE]
        means = np.concatenate([self.means, sums[unseen] / counts[unseen, None]])
        return replace(self, names=(*self.names, *(names[g] for g in unseen)), means=means)

    def apply(self, texts: Sequence[str], samples: Samples, features: Samples) -> Dataset:
        """Move the features of samples whose groups the ``texts`` name; other features stay."""
        names, groups = _number(texts)
        known = dict(zip(self.names, self.means, strict=True))
        shifts = np.array([self.mean - known.get(name, self.mean) for name in names])
        return Dataset(MovedSamples(samples, features, shifts, groups))

    def save(self, run: Path) -> None:
        """Write the means into a run folder."""
        words = np.frombuffer(json.dumps([self.column, self.names]).encode(), np.uint8)
        write_atomically(
            run / CENTRES_FILE, lambda file: np.savez(file, words=words, means=self.means, mean=self.mean)
        )

    @classmethod
    def load(cls, run: Path) -> Centring | None:
        """Read the means of a run, unless they are damaged; ``None`` if it was not centred."""
        path = run / CENTRES_FILE
        try:
            found = read_arrays(path)
            column, names = parse_json(require_few(found["words"].tobytes(), path))
            means, mean = found["means"], found["mean"]
            if mean.ndim != 1 or means.shape != (len(names), *mean.shape):
                raise ValueError("its arrays do not fit together")
            return cls(str(column), tuple(map(str, names)), means, mean)
        except FileNotFoundError:
            return None
        except (OSError, DamagedFileError, ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(f"{path} is damaged ({error}): train again") from None


def features_of(encoder: Encoder, data: Dataset, compute: Compute) -> Samples:
    """Compute the features of images; the user's own vectors, and features, stay as they are."""
    if data.samples.kind != "images":
        return data.samples
    keep = not isinstance(data.samples, MemoryImages)  # which may never come again
    return frozen_features(encoder, data, compute, keep=keep).samples


def as_trained(run: Path, model: Model, data: Dataset, about: str | Path | None = None) -> Dataset:
    """Return samples that a model has opened, centred if the training's samples were centred.

    A table ``about`` them tells the column that the run was centred by. It may be left out for samples that
    the run knows, and for image files that tell it themselves.
    """
    if (centring := Centring.load(run)) is None:
        return data
    samples, kept = data.samples, None if about is not None else KeptAbout.load(run / ABOUT_FILE)
    texts = centring.texts_in(find_about(samples, about) if kept is None else kept.of(samples))
    features = features_of(model.stored.encoder, data, model.compute)
    return centring.extend(texts, samples, features).apply(texts, samples, features)


def _number(texts: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    names, groups = np.unique(np.array(texts, object), return_inverse=True)
    return tuple(names.tolist()), groups.astype(np.int64)


def _sum_up(samples: Samples, features: Samples, groups: IntArray) -> tuple[DoubleArray, float]:
    """Sum up the features of each group, ``(G, d)``, and the squares of all."""
    shape = (int(groups.max()) + 1, features.read(np.zeros(1, np.int64)).shape[1])
    sums, squares = np.zeros(shape), 0.0
    plain = MovedSamples(samples, features, sums, groups)
    for start in range(0, len(groups), _BLOCK):
        index = np.arange(start, min(start + _BLOCK, len(groups)))
        rows = plain.read(index).astype(np.float64)
        places = (groups[index], np.arange(len(index)))
        sums += sparse.csr_array((np.ones(len(index)), places), shape=(shape[0], len(index))) @ rows
        squares += float(np.square(rows).sum())
    return sums, squares
