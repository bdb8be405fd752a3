"""Computes features of a frozen network without a cache; the test starts it in one process or in two."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ucds.backbones import module_backbone
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.training.features import frozen_features
from ucds.training.options import Compute
from ucds.training.runtime import Runtime

SAMPLES = 45


class Counting(nn.Module):
    """Turns vectors ``(n, 6)`` into their sines, and counts them."""

    seen = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += len(inputs)
        return inputs.sin()


def main(devices: int, out: Path) -> None:
    runtime = Runtime(Compute("cpu", cache=None), devices=devices)
    runtime.launch()
    vectors = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype(np.float32)
    network = Counting()
    data = Dataset(VectorSamples(vectors))
    found = frozen_features(module_backbone(network, 6), data, runtime, batch_size=8)
    np.save(out / f"features-{runtime.rank}.npy", found.samples.read(np.arange(SAMPLES)).numpy())
    (out / f"seen-{runtime.rank}").write_text(str(network.seen))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), Path(sys.argv[2]))
