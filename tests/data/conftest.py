"""Image folders made on the fly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeImages = Callable[..., list[Path]]


@pytest.fixture
def make_images(tmp_path: Path, write_images: MakeImages) -> MakeImages:
    """Write noise images under names relative to ``data`` and return their paths."""
    return lambda *names, first_seed=0: write_images(tmp_path / "data", names, first_seed)
