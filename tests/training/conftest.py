"""Makes the helpers beside these tests importable, and keeps the number of threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # for `killing`, in the processes that it starts too


@pytest.fixture
def several_threads() -> Iterator[int]:
    """The number of threads that PyTorch has during the test, which may change it."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)
