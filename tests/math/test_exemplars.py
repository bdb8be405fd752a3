"""Tests of `ucds.math.exemplars`: samples far from all others, and copies."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ucds.math.exemplars import find_nearest, find_outliers, group_near_duplicates


def test_outliers_are_found_farthest_first_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    near = np.eye(16)[0] + 0.05 * rng.normal(size=(60, 16))
    odd = np.stack([np.eye(16)[1], 0.5 * np.eye(16)[0] + np.eye(16)[2]])
    features = np.concatenate([near, odd]).astype(np.float32)
    assert find_outliers(find_nearest(features)).tolist() == [60, 61]
    assert find_outliers(find_nearest(features[:60])).tolist() == []
    assert find_outliers(find_nearest(features[:4])).tolist() == []
    assert find_outliers(find_nearest(np.ones((50, 4), np.float32))).tolist() == []


def picture(seed: int) -> NDArray[np.uint8]:
    """A smooth picture of random blobs, 32 x 32."""
    coarse = np.random.default_rng(seed).integers(256, size=(6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((32, 32), Image.Resampling.BICUBIC))


def recompressed(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture after strong JPEG compression, enlarged and made smaller again, and darker."""
    file = io.BytesIO()
    Image.fromarray(image).resize((50, 50)).save(file, "JPEG", quality=60)
    return (np.asarray(Image.open(file).resize((32, 32))) * 0.8).astype(np.uint8)


def test_copies_are_grouped_and_other_pictures_are_not() -> None:
    pictures = np.stack(
        [picture(0), picture(1), recompressed(picture(0)), picture(2), picture(0), picture(1)]
    )
    alike = np.ones((6, 4), np.float32)  # features of one class: they do not tell copies from others
    groups = group_near_duplicates(find_nearest(alike), pictures)
    assert [group.tolist() for group in groups] == [[0, 2, 4], [1, 5]]
    # Pictures with different features are not compared.
    assert group_near_duplicates(find_nearest(np.eye(6, dtype=np.float32)), pictures) == []


def test_without_pictures_only_almost_equal_vectors_are_copies() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 8)).astype(np.float32)
    features[7] = 2 * features[3]
    features[9] = features[3] + 0.05 * rng.normal(size=8)
    assert [group.tolist() for group in group_near_duplicates(find_nearest(features), None)] == [[3, 7]]
    assert group_near_duplicates(find_nearest(features[:1]), None) == []
