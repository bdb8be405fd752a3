"""Models of vectors that are easy to judge, and samples for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from label_service import source_model

from ucds.backbones import identity_backbone
from ucds.models import ProjectionHead
from ucds.training.model_file import save_model

WIDTH = 16


def draw(count: int, seed: int) -> np.ndarray:
    """Vectors of three wide groups."""
    rng = np.random.default_rng(seed)
    groups = 2 * np.eye(WIDTH)[rng.integers(0, 3, count)]
    return (groups + rng.standard_normal((count, WIDTH))).astype(np.float32)


class HalfSpace:
    """Labels a vector, or an image, by whether the mean of its entries is above a threshold, and keeps it."""

    name, n_clusters, privacy, proportions = "half space", 2, None, None

    def __init__(self, threshold: float) -> None:
        self.threshold, self.asked = threshold, list[torch.Tensor]()

    @property
    def queries(self) -> int:
        return sum(map(len, self.asked))

    def ask(self, rows: torch.Tensor) -> np.ndarray:
        self.asked.append(rows)
        return (rows.flatten(1).float().mean(1) > self.threshold).long().numpy()


def save_nearest(run: Path, prototypes: np.ndarray) -> None:
    """Write a source model that labels a vector by the prototype with the largest cosine."""
    unit = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    head = ProjectionHead(
        torch.eye(WIDTH), torch.zeros(WIDTH), torch.ones(WIDTH), torch.from_numpy(unit.T.astype(np.float32))
    )
    shape = {"bottleneck_width": WIDTH, "unit_features": True}
    run.mkdir()
    save_model(run, source_model(identity_backbone(WIDTH), len(unit), head, name="nearest", **shape))
