"""Short trainings of baselines: their sessions, pictures of random pixels, and what only the seed decides."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ucds.baselines.iic import PairSettings
from ucds.baselines.loop import Clustering
from ucds.choices import Precision
from ucds.config import ModelSettings
from ucds.data.dataset import Dataset, ImageView
from ucds.data.decode import ByteArray
from ucds.gradients.session import Session
from ucds.math.arrays import IntArray
from ucds.training.options import Compute


def session(
    given: ModelSettings | None = None, seed: int = 0, precision: Precision = "32-true", **settings: Any
) -> Session[ModelSettings]:
    """A session with these settings, a narrow bottleneck, a frozen backbone, and what else is given."""
    own = (given or PairSettings()).model_copy(update={"bottleneck_width": 16, "tune": "head"} | settings)
    return Session(own, Compute("cpu", precision, cache=None), seed=seed)


class Pictures:
    """Random 48 x 48 pictures of several domains, in memory."""

    kind, files = "images", None

    def __init__(self, n: int, n_domains: int) -> None:
        self.ids = tuple(map(str, range(n)))
        self.keys = tuple(i.to_bytes(16, "little") for i in range(n))
        self.domain = np.arange(n, dtype=np.int64) % n_domains
        self.domain_names = tuple(f"d{d}" for d in range(n_domains))
        self.fingerprint = f"pictures {n} {n_domains}"
        self._pixels = np.random.default_rng(0).integers(256, size=(n, 3, 48, 48), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, index: IntArray) -> ByteArray:
        return self._pixels[index]


def pictures(n: int, n_domains: int = 1) -> Dataset:
    return Dataset(Pictures(n, n_domains), ImageView(32))


def read_all(data: Dataset) -> Tensor:
    return torch.from_numpy(data.samples.read(np.arange(len(data.samples))))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters by name."""
    return {name: weight.detach().clone() for name, weight in module.named_parameters()}


def assert_only_the_seed_decides(run: Callable[[int], Clustering]) -> None:
    one, again, other = map(run, (0, 0, 1))
    np.testing.assert_array_equal(one.labels, again.labels)
    states = [found.model.state_dict() for found in (one, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["prototypes"], states[2]["prototypes"])
