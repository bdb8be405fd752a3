"""Tests of the packaged encoder with fixed filters of edges."""

import numpy as np
import pytest

from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES


def features(images: np.ndarray) -> np.ndarray:
    encoder = find_graph(EDGES, image_size=images.shape[-1])
    assert encoder is not None
    return encoder(images.astype(np.float32))


def noise(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((6, 3, size, size), np.float32)


@pytest.mark.parametrize("images", [noise(28), np.zeros((2, 3, 28, 28))], ids=["noise", "blank"])
def test_features_are_those_of_the_formula(images: np.ndarray) -> None:
    smooth, slope = [1, 2, 1], [-1, 0, 1]
    grey = np.pad(images.astype(np.float64).mean(1), ((0, 0), (1, 1), (1, 1)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2))
    across, down = (
        np.einsum("nhwij,ij->nhw", windows, np.outer(*pair) / 8)
        for pair in ((smooth, slope), (slope, smooth))
    )
    angles = np.arange(8)[:, None, None] * np.pi / 8
    edges = np.cos(angles) * across[:, None] + np.sin(angles) * down[:, None]
    energy = edges**2 / (np.sqrt((edges**2).sum(1, keepdims=True)) + 1e-4)
    cells = energy.reshape(-1, 8, 4, 7, 4, 7).mean((3, 5))
    length = np.sqrt((cells**2).sum(1, keepdims=True))
    wanted = cells / (length + 0.5 * length.mean((2, 3), keepdims=True) + 1e-6)
    np.testing.assert_allclose(features(images), wanted.reshape(-1, 128), atol=1e-6)
