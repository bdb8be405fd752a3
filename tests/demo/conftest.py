"""The embedded digits, drawn once."""

from pathlib import Path

import pytest

from ucds.demo.digits import write_digits


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``digits`` of a demo."""
    root = tmp_path_factory.mktemp("demo") / "digits"
    write_digits(root)
    return root
