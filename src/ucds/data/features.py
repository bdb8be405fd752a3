"""Samples seen through a frozen backbone: vectors that lie in a store on disk."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ucds.data.part_store import PartStore
from ucds.data.samples import Kind, Samples
from ucds.errors import DamagedFileError, InputError
from ucds.math.arrays import IntArray


class FeatureSamples:
    """The features of other samples, with the same ids, domains and keys.

    Args:
        samples: samples that the features were computed from; they are not read.
        store: rows that hold the features of every sample under its content key.

    Raises:
        InputError: the store lacks some of the features.
    """

    kind: Kind = "features"

    def __init__(self, samples: Samples, store: PartStore) -> None:
        self.ids = samples.ids
        self.domain = samples.domain
        self.domain_names = samples.domain_names
        self.keys = samples.keys
        self.files = samples.files
        self.fingerprint = f"{samples.fingerprint}-{store.path.name}"
        self._store = store
        self._rows = store.rows_of(samples.keys)
        if (self._rows < 0).any():
            raise InputError(f"the cache {store.path} lost features while they were computed: run again")

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: IntArray) -> Tensor:
        """Read the features ``(b, width)`` float32 of the samples at positions ``index``."""
        features, good = self._store.read(self._rows[np.asarray(index, np.int64)])
        if not good.all():
            damaged = f"{(~good).sum():,} rows of the cache {self._store.path} are damaged"
            raise DamagedFileError(f"{damaged}; run again to make them anew")
        return torch.from_numpy(features)
