"""The centre of an image, and vectors, as an encoder sees them."""

import numpy as np
import pytest

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.data.dataset import ImageView


def images(n: int, size: int = 40) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(n, 3, size, size), dtype=np.uint8)


def normalised(image: np.ndarray) -> np.ndarray:
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (image / 255 - mean) / std


def test_the_view_of_an_image_is_its_centre():
    raw = images(4, size=41)
    before = raw.copy()
    result = ImageView(crop=24).test(raw)
    assert result.dtype == np.float32
    expected = np.stack([normalised(image[:, 8:32, 8:32]) for image in raw])
    np.testing.assert_allclose(result, expected, atol=2e-6)
    assert np.array_equal(raw, before)


def test_images_smaller_than_the_crop_are_refused():
    with pytest.raises(ValueError, match="cannot be cropped"):
        ImageView(crop=41).test(images(2))
