"""A fake label service, and the place and the key of its client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_service import KEY, FakeService


@pytest.fixture(autouse=True)
def _empty_folder_and_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UCDS_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers about images."""
    running = FakeService()
    yield running
    running.close()
