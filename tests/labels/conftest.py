"""A fake label service."""

from collections.abc import Iterator

import pytest
from fake_service import FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers about images."""
    running = FakeService()
    yield running
    running.close()
