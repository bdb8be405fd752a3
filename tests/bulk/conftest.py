"""Images of noise in many places, and models that sort them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ucds
from ucds.training.loaded import FEWEST_TO_CENTRE
from ucds.training.model_file import save_model

IMAGES = FEWEST_TO_CENTRE + 3


@pytest.fixture(scope="session")
def edges() -> ucds.EncoderOptions:
    """An encoder that computes fast."""
    return ucds.EncoderOptions("ucds/oriented_edges", "none", 64)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, write_images: Callable[..., list[Path]]) -> Path:
    """35 images of noise in two folders; and a file that is no image."""
    root = tmp_path_factory.mktemp("bulk") / "images"
    write_images(root, [f"{'day' if i % 2 else 'night'}/{i:02}.png" for i in range(IMAGES)], size=(48, 40))
    (root / "day" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    return root


@pytest.fixture(scope="session")
def runs(
    tmp_path_factory: pytest.TempPathFactory, edges: ucds.EncoderOptions, stored_model: Callable[..., Any]
) -> Path:
    """Run folders of images, ``source`` (seen from their own mean) and ``target``; no training is needed."""
    root = tmp_path_factory.mktemp("bulk-runs")
    for role in ("source", "target"):
        card = {"role": role, "unit_features": True, "recentres": role == "source"}
        (root / role).mkdir()
        save_model(root / role, stored_model(edges.find(ucds.Compute(cache=None)), 5, 8, **card))
    return root
