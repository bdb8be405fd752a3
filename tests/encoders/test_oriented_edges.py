"""Tests of the packaged encoder with fixed filters of edges."""

import numpy as np

from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES


def features(images: np.ndarray) -> np.ndarray:
    encoder = find_graph(EDGES, image_size=images.shape[-1])
    assert encoder is not None
    return encoder(images.astype(np.float32))


def noise(size: int = 32) -> np.ndarray:
    return np.random.default_rng(0).random((6, 3, size, size), np.float32)


def test_light_on_dark_looks_like_dark_on_light() -> None:
    np.testing.assert_allclose(features(1 - noise()), features(noise()), rtol=1e-4, atol=1e-5)


def test_an_edge_answers_in_its_own_direction() -> None:
    upright = np.zeros((1, 3, 32, 32))
    upright[..., 16:] = 1.0  # brightness changes from left to right
    strengths = [features(one).reshape(8, 4, 4).sum((1, 2)) for one in (upright, upright.swapaxes(2, 3))]
    assert [int(strength.argmax()) for strength in strengths] == [0, 4]


def test_a_blank_image_has_finite_features() -> None:
    assert features(np.zeros((2, 3, 32, 32))).max() == 0


def test_features_are_those_of_the_formula() -> None:
    images, (smooth, slope) = noise(28).astype(np.float64), ([1, 2, 1], [-1, 0, 1])
    grey = np.pad(images.mean(1), ((0, 0), (1, 1), (1, 1)), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2))
    across, down = (
        np.einsum("nhwij,ij->nhw", windows, np.outer(*pair) / 8)
        for pair in ((smooth, slope), (slope, smooth))
    )
    angles = np.arange(8)[:, None, None] * np.pi / 8
    edges = np.cos(angles) * across[:, None] + np.sin(angles) * down[:, None]
    energy = edges**2 / (np.sqrt((edges**2).sum(1, keepdims=True)) + 1e-4)
    cells = energy.reshape(6, 8, 4, 7, 4, 7).mean((3, 5))
    length = np.sqrt((cells**2).sum(1, keepdims=True))
    wanted = cells / (length + 0.5 * length.mean((2, 3), keepdims=True) + 1e-6)
    np.testing.assert_allclose(features(images), wanted.reshape(6, 128), atol=1e-6)
