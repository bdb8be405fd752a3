"""Tensors of PyTorch, and its data sets, are samples as arrays are."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ucds.data.columns import Pictures
from ucds.data.images import MemoryImages
from ucds.data.samples import Samples
from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError

pytestmark = pytest.mark.torch

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
PIXELS = np.random.default_rng(0).integers(256, size=(3, 24, 24, 3), dtype=np.uint8)

READ: dict[str, Callable[[], Any]] = {
    "float32 with a gradient": lambda: torch.from_numpy(ROWS).requires_grad_(),
    "data set": lambda: torch.utils.data.TensorDataset(torch.from_numpy(ROWS), torch.zeros(3)),
    "bfloat16": lambda: torch.tensor(ROWS).bfloat16(),
    "float16": lambda: torch.tensor(ROWS).half(),
    "rows of bfloat16": lambda: list(torch.tensor(ROWS).bfloat16()),
    "sparse tensor": lambda: torch.tensor(ROWS).to_sparse(),
    "sparse tensor in rows": lambda: torch.tensor(ROWS).to_sparse_csr(),
    "negative view": lambda: torch.complex(torch.zeros(3, 2), torch.tensor(-ROWS)).conj().imag,
}


@pytest.mark.parametrize("kind", READ)
def test_vectors_are_read_rightly(kind: str) -> None:
    with warnings.catch_warnings(action="error", category=UserWarning):
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        found = find_samples(READ[kind](), by_domain=False)
    assert isinstance(found, VectorSamples)
    np.testing.assert_array_equal(found.read(np.arange(3)), ROWS)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "complex tensor": (lambda: torch.tensor(ROWS * 1j), "real numbers"),
    "tensor without storage": (lambda: torch.ones(3, 2, device="meta"), "cannot be read as an array"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_holds_no_real_numbers_is_refused_in_one_short_line(kind: str) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(UserError, match=words) as refusal:
        find_samples(make(), by_domain=False)
    assert "\n" not in str(refusal.value)


def test_pictures_are_read_from_one_tensor() -> None:
    found = find_samples(torch.from_numpy(PIXELS), by_domain=False)
    assert isinstance(found, Pictures)
    samples: Samples = MemoryImages(found, 24)
    np.testing.assert_array_equal(samples.read(np.arange(3)), PIXELS.transpose(0, 3, 1, 2))
