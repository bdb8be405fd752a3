"""A fake label service, and small image files to ask it about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_service import Clinic, FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers about images."""
    running = FakeService()
    yield running
    running.close()


@pytest.fixture
def make_images(tmp_path: Path, write_images: Callable[..., list[Path]]) -> Callable[[int], Path]:
    """Write so many different small images into a folder, in two sub-folders."""

    def make(count: int) -> Path:
        names = (f"{'ab'[number % 2]}/{number:03d}.png" for number in range(count))
        write_images(tmp_path / "images", names, size=(8, 8))
        return tmp_path / "images"

    return make


@pytest.fixture
def clinic(service: FakeService, make_images: Callable[[int], Path], tmp_path: Path) -> Clinic:
    return Clinic(service, make_images, tmp_path)
