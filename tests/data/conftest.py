"""Image folders made on the fly: noise, so that no two files are alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

MakeImages = Callable[..., list[Path]]


def _noise_image(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def noise_image() -> Callable[..., Image.Image]:
    """Smooth noise of a seed and size."""
    return _noise_image


@pytest.fixture
def make_images(tmp_path: Path) -> MakeImages:
    """Write noise images under the given relative names and return their paths."""

    def make(*names: str, root: Path | None = None, first_seed: int = 0) -> list[Path]:
        paths = []
        for number, name in enumerate(names):
            path = (root or tmp_path / "data") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _noise_image(first_seed + number).save(path)
            paths.append(path)
        return paths

    return make
