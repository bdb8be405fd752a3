"""A number of threads that tests of loops change."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def several_threads() -> Iterator[int]:
    """The number of threads that PyTorch has during the test, which may change it."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)
