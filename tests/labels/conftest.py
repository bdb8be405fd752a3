"""A fake label service, and small image files to ask it about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.append(str(Path(__file__).parent))  # pytest's import mode leaves helpers beside tests unfound

from fake_service import Clinic, FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers about images."""
    running = FakeService()
    yield running
    running.close()


@pytest.fixture
def make_images(tmp_path: Path) -> Callable[..., Path]:
    """Write so many different small images into a folder, in two sub-folders."""

    def make(count: int, folder: str = "images") -> Path:
        root = tmp_path / folder
        for name in ("a", "b"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / ("a", "b")[number % 2] / f"{number:03d}.png")
        return root

    return make


@pytest.fixture
def clinic(service: FakeService, make_images: Callable[..., Path], tmp_path: Path) -> Clinic:
    return Clinic(service, make_images, tmp_path)
