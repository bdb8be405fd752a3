"""Any network can be the encoder: here a small network for one-dimensional signals.

    python examples/own_network.py

Clusters artificial heartbeats of three shapes, recorded by two devices, with a convolutional network that
this file defines. Takes a few seconds on a CPU.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ucds import SourceClustering, clustering_accuracy, module_encoder


class SignalNetwork(nn.Module):
    """Compute 24 features of each signal of 64 values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 12, 7, padding=3), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(12, 24, 5), nn.ReLU()
        )

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """Return the mean response of each filter, ``(n, 24)``, to signals ``(n, 64)``."""
        responses: torch.Tensor = self.layers(signals.unsqueeze(1)).mean(-1)
        return responses


def heartbeats(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw signals ``(n, 64)``, and for each the device that recorded it and its shape."""
    shape, device = rng.integers(3, size=n), rng.integers(2, size=n)
    time = np.linspace(0, 1, 64)
    waves = np.stack([np.sin(12 * time), np.sign(np.sin(30 * time)), np.exp(-60 * (time - 0.5) ** 2)])
    noise = 0.2 * rng.normal(size=(n, 64))
    return waves[shape] * np.array([1.0, 1.4])[device, None] + noise, device, shape


def main() -> None:
    signals, device, shape = heartbeats(600, np.random.default_rng(0))
    torch.manual_seed(0)
    encoder = module_encoder(SignalNetwork(), width=24)
    # The network starts from random weights and must be trained, so this takes the paper's method.
    short = {"source_epochs": 20}
    model = SourceClustering(3, method="pcd", backbone=encoder, settings=short, random_state=0)
    model.fit(signals, sample_domain=device)
    print(f"clusters agree with the shapes: {100 * clustering_accuracy(model.labels_, shape):.1f} %")


if __name__ == "__main__":
    main()
