"""Unlabelled samples, addressed by position: all that a training stage may see of the data.

A sample has an id, a domain and a content key, and never a class. Ground truth is read from the
ids by ``ucds.data.ground_truth``, after training.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from ucds.data.content import KEY_TYPE, Column, content_key, keys_of, present_domains, texts_of
from ucds.data.folders import Scan
from ucds.errors import InputError
from ucds.math.arrays import FloatArray, IntArray

Value = TypeVar("Value", bound=np.generic)
Kind = Literal["images", "embeddings", "features", "lengths", "bottleneck"]
"""Kind of samples: pixels, the user's own vectors, features of images by a known encoder, or the
vectors of :class:`SeenSamples` and :class:`BottleneckSamples`."""

_KEYS_AT_A_TIME = 256


class Samples(ABC):
    """Unlabelled samples of one or several domains.

    Args:
        ids: stable id of each sample: the path below the root, or "0", "1", .. for arrays.
        domain: ``(n,)`` int64 positions in ``domain_names``.
        domain_names: names of the domains; each has at least one sample.
        form: name of the form of the contents, for the fingerprint.
        paths: path of each image, whose folders may name its class; the ids if ``None``.

    Attributes:
        kind: pixels, embeddings or features.
        columns: names of the columns of a table of numbers; ``None`` for all other samples.
        listed: ids of all samples that were given, including those that cannot be used.
        kept: ``(n,)`` positions of the samples among those that were given; ``None`` if all can be used.
        files: image files of the samples; ``None`` for other samples.
        skipped: number of samples that were given and cannot be used.
    """

    kind: Kind
    columns: tuple[str, ...] | None = None
    kept: IntArray | None = None
    files: Scan | None = None
    skipped: int = 0

    def __init__(
        self,
        ids: Sequence[str],
        domain: IntArray,
        domain_names: Sequence[str],
        form: str = "",
        paths: Sequence[str] | None = None,
    ) -> None:
        self.ids, self.domain, self.domain_names = texts_of(ids), domain, tuple(domain_names)
        self.readable_paths = self.ids if paths is None else texts_of(paths)
        self.listed, self._form = self.ids, form

    @cached_property
    def keys(self) -> Sequence[bytes]:
        """16-byte content key of each sample, under which results computed from the sample can be stored."""
        keys = np.empty(len(self), KEY_TYPE)
        for start in range(0, len(self), _KEYS_AT_A_TIME):
            rows = self.read(np.arange(start, min(start + _KEYS_AT_A_TIME, len(self))))
            keys[start : start + len(rows)] = [content_key(row.tobytes()) for row in rows]
        return Column(keys)

    @cached_property
    def fingerprint(self) -> str:
        """Hexadecimal hash of contents (with their form), ids and domains."""
        digest = hashlib.sha256()
        for text in chain((self.form(), *self.domain_names), self.ids):  # ids may be computed one by one
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
        digest.update(np.ascontiguousarray(self.domain, dtype="<i8").data)
        for key in self.keys:
            digest.update(key)
        return digest.hexdigest()

    def form(self) -> str:
        """Return the name of the form of the contents, for the fingerprint."""
        return self._form

    def __len__(self) -> int:
        return len(self.domain)

    def as_listed(self, values: npt.NDArray[Value], missing: float) -> npt.NDArray[Value]:
        """Return the ``(n, ..)`` values of the samples, with the entry ``missing`` for samples left out."""
        if self.kept is None:
            return values
        whole = np.full((len(self.listed), *values.shape[1:]), missing, values.dtype)
        whole[self.kept] = values
        return whole

    @abstractmethod
    def read(self, index: IntArray) -> npt.NDArray[Any]:
        """Read the samples at positions ``index``, in that order.

        Returns:
            New array of ``(b, 3, S, S)`` uint8 images or ``(b, d)`` vectors.
        """


Listing = Scan | Samples
"""Samples, or the files of a scan: both have ids and domains."""


class SubsetSamples(Samples):
    """Some samples of another collection, by position; :func:`subset` makes one."""

    def __init__(
        self, parent: Samples, index: IntArray, domain: IntArray, domain_names: tuple[str, ...]
    ) -> None:
        paths = parent.readable_paths.take(index)
        super().__init__(parent.ids.take(index), domain, domain_names, paths=paths)
        self.parent, self.index, self.kind, self.columns = parent, index, parent.kind, parent.columns

    @cached_property
    def keys(self) -> Column[bytes]:
        """Content keys of the chosen samples."""
        return keys_of(self.parent.keys).take(self.index)

    def form(self) -> str:
        """Return the name of the form of the chosen samples."""
        row = self.parent.read(self.index[:1])[0]
        return f"subset {tuple(row.shape)} {row.dtype}"

    def read(self, index: IntArray) -> npt.NDArray[Any]:
        """Read the samples at positions ``index`` of this subset."""
        return self.parent.read(self.index[np.asarray(index, np.int64)])


class SeenSamples(Samples):
    """Vectors after a function that keeps their lengths apart, computed when they are read."""

    kind = "lengths"

    def __init__(self, samples: Samples, see: Callable[[npt.NDArray[Any]], FloatArray]) -> None:
        super().__init__(samples.ids, samples.domain, samples.domain_names, samples.form())
        self._samples, self._see = samples, see

    @cached_property
    def keys(self) -> Sequence[bytes]:
        """Content keys of the vectors as they were given."""
        return self._samples.keys

    def read(self, index: IntArray) -> FloatArray:
        """Read the vectors at positions ``index``, after the function."""
        return self._see(self._samples.read(index))


class BottleneckSamples(Samples):
    """Features of samples after a model's bottleneck, as a run remembers them: nothing is encoded again."""

    kind = "bottleneck"

    def __init__(self, samples: Samples, features: FloatArray, rows: IntArray) -> None:
        names, paths = samples.domain_names, samples.readable_paths
        super().__init__(samples.ids, samples.domain, names, paths=paths)
        self.keys, self.columns, self._features, self._rows = samples.keys, samples.columns, features, rows

    def read(self, index: IntArray) -> FloatArray:
        """Read the features at positions ``index``."""
        return self._features[self._rows[index]]


def subset(samples: Samples, index: npt.ArrayLike, keep_domains: bool = False) -> SubsetSamples:
    """Choose samples by ``(m,)`` positions, at least one, in the order given, without copying any.

    The remaining domains get new numbers, unless ``keep_domains`` also keeps those without samples.
    """
    chosen = np.asarray(index, dtype=np.int64)
    if chosen.ndim != 1 or chosen.size == 0:
        raise ValueError("a subset needs a list of at least one position")
    if chosen.min() < 0 or chosen.max() >= len(samples):
        raise ValueError(f"positions must lie between 0 and {len(samples) - 1}")
    domain = samples.domain[chosen]
    if keep_domains:
        return SubsetSamples(samples, chosen, domain, samples.domain_names)
    return SubsetSamples(samples, chosen, *present_domains(domain, samples.domain_names))


def split_validation(samples: Samples, fraction: float, seed: int) -> tuple[SubsetSamples, SubsetSamples]:
    """Set a random part of each domain aside; equal seeds give equal parts.

    Of n samples of a domain, ``round(fraction * n)`` are set aside, but at least one and never all: the only
    sample of a domain stays in training. The result is the training part, then the other; both keep the order
    and the domain numbering of ``samples``.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the validation fraction must lie between 0 and 1, not {fraction}")
    held_out = np.zeros(len(samples), dtype=bool)
    for d in range(len(samples.domain_names)):
        positions = np.flatnonzero(samples.domain == d)
        count = min(max(1, round(fraction * len(positions))), len(positions) - 1)
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(d,)))
        held_out[generator.permutation(positions)[:count]] = True
    if not held_out.any():
        raise InputError("No sample can be set aside for validation: every domain has one sample only.")
    train, validation = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    return subset(samples, train, keep_domains=True), subset(samples, validation, keep_domains=True)


def draw_samples(
    samples: Samples, most: int, generator: np.random.Generator, first: Sequence[IntArray] = ()
) -> IntArray:
    """Draw at most ``most`` samples of each domain, and return their positions ``(m,)``, ascending.

    The groups of positions in ``first`` are drawn before all others, the first group before the second. If no
    domain has more than ``most`` samples, the generator is not used.
    """
    rank = np.full(len(samples), len(first), np.uint8)
    for place, group in reversed(list(enumerate(first))):
        rank[group] = place
    kept = []
    for d in range(len(samples.domain_names)):
        positions = np.flatnonzero(samples.domain == d)
        if len(positions) > most:
            drawn = generator.permutation(positions)
            positions = drawn[np.argsort(rank[drawn], kind="stable")[:most]]
        kept.append(positions)
    return np.sort(np.concatenate(kept))
