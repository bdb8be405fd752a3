"""Small tasks for the baselines: vectors around shared centres, and pictures of random pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ucds.baselines.iic import PairSettings
from ucds.choices import Precision
from ucds.config import ModelSettings
from ucds.data.dataset import Dataset, ImageView
from ucds.data.vectors import VectorSamples
from ucds.math.arrays import IntArray
from ucds.training.options import Compute
from ucds.training.runtime import Runtime
from ucds.training.session import Session

OpenSession = Callable[..., Session[Any]]
K = 4


class Pictures:
    """Random 48 x 48 pictures of several domains, in memory."""

    kind, files = "images", None

    def __init__(self, n: int, n_domains: int = 1) -> None:
        self.ids = tuple(map(str, range(n)))
        self.keys = tuple(i.to_bytes(16, "little") for i in range(n))
        self.domain = np.arange(n, dtype=np.int64) % n_domains
        self.domain_names = tuple(f"d{d}" for d in range(n_domains))
        self.fingerprint = f"pictures {n} {n_domains}"
        self._pixels = np.random.default_rng(0).integers(256, size=(n, 3, 48, 48), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: IntArray) -> torch.Tensor:
        return torch.from_numpy(self._pixels[index])


@pytest.fixture
def session() -> OpenSession:
    def opened(
        given: ModelSettings | None = None, seed: int = 0, precision: Precision = "32-true", **settings: Any
    ) -> Session[ModelSettings]:
        """A session with these settings, a narrow bottleneck, a frozen backbone, and what else is given."""
        own = (given or PairSettings()).model_copy(update={"bottleneck_width": 16, "tune": "head"} | settings)
        return Session(Runtime(Compute("cpu", precision, cache=None), seed=seed), own)

    return opened


@pytest.fixture(scope="session")
def source(blobs: Any) -> Dataset:
    """Two domains, 60 and 44 vectors; row ``i`` of each belongs to centre ``i % 4``."""
    made = blobs({"a": 60, "b": 44, "t": 80}, K, 24)
    del made["t"]
    return Dataset(VectorSamples.from_arrays(made))


@pytest.fixture(scope="session")
def target(blobs: Any) -> Dataset:
    """A third domain of 80 vectors around the same centres."""
    return Dataset(VectorSamples(blobs({"a": 60, "b": 44, "t": 80}, K, 24)["t"]))


@pytest.fixture
def pictures() -> Callable[..., Dataset]:
    def made(n: int, n_domains: int = 1) -> Dataset:
        return Dataset(Pictures(n, n_domains), ImageView(32))

    return made
