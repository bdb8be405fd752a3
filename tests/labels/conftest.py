"""A fake label service, and a client that asks it about small image files."""

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
def clinic(service: FakeService, write_images: Callable[..., list[Path]], tmp_path: Path) -> Clinic:
    return Clinic(service, write_images, tmp_path)
