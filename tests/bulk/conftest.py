"""Images of three colours in many places, and models that sort them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ucds
from ucds.choices import Role
from ucds.models import ClusteringModel
from ucds.training.loaded import FEWEST_TO_CENTRE
from ucds.training.model_file import ModelCard, StoredModel, save_model

IMAGES = FEWEST_TO_CENTRE + 3


@pytest.fixture(scope="session")
def edges() -> ucds.EncoderOptions:
    """An encoder that computes fast."""
    return ucds.EncoderOptions("ucds/oriented_edges", "none", 64)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """35 images of noise in two folders, one of them below the other; and a file that is no image."""
    root = tmp_path_factory.mktemp("bulk") / "images"
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        path = root / ("day" if number % 2 else "night") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (4 + number % 5, 6, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((48, 40), Image.Resampling.BICUBIC).save(path)
    (root / "day" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    return root


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, edges: ucds.EncoderOptions) -> Path:
    """Run folders of images, ``source`` (seen from their own mean) and ``target``; no training is needed."""
    root = tmp_path_factory.mktemp("bulk-runs")
    roles: tuple[Role, ...] = ("source", "target")
    for role in roles:
        backbone, generator = edges.build(), torch.Generator().manual_seed(1)
        model = ClusteringModel(backbone, 5, bottleneck_width=8, unit_features=True, generator=generator)
        card = ModelCard(
            role,
            f"clinic-{role}",
            5,
            8,
            backbone.spec,
            backbone.weights,
            ("a",),
            ("clusters",),
            tune="head",
            unit_features=True,
            recentres=role == "source",
        )
        (root / role).mkdir()
        save_model(root / role, StoredModel.of(card, model, torch.full((1, 5), 0.2)))
    return root
