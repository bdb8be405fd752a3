"""Tests of `ucds.math.perceptual_hash` on smooth pictures, against what changes and what does not."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from ucds.math.perceptual_hash import FREQUENCIES, HASH_BYTES, count_different_bits, hash_images


def smooth_pictures(count: int, side: int, seed: int = 0) -> np.ndarray:
    """Colour pictures of soft blots, each different."""
    noise = np.random.default_rng(seed).standard_normal((count, 3, side, side))
    soft = gaussian_filter(noise, (0, 0, side / 24, side / 24), mode="nearest")
    return np.clip(128 + 60 * soft / soft.std((1, 2, 3), keepdims=True), 0, 255).astype(np.uint8)


def test_the_mirror_image_has_no_bit_of_difference_and_others_half() -> None:
    pictures = smooth_pictures(30, 64)
    hashes = hash_images(pictures)
    assert hashes.shape == (30, HASH_BYTES)
    mirrored = hash_images(np.ascontiguousarray(pictures[..., ::-1]))
    found = count_different_bits(hashes, mirrored)
    np.testing.assert_array_equal(found.diagonal(), 0)
    np.testing.assert_array_equal(found, count_different_bits(hashes, hashes))
    apart = found[~np.eye(30, dtype=bool)]
    assert apart.min() > 90
    assert abs(np.median(apart) - FREQUENCIES**2 / 2) < 12  # the smaller of two numbers near the half


def test_small_changes_of_an_image_change_few_bits() -> None:
    pictures = smooth_pictures(30, 96)
    rng = np.random.default_rng(1)
    noisy = np.clip(pictures + 20 * rng.standard_normal(pictures.shape), 0, 255).astype(np.uint8)
    for changed in (noisy, pictures // 2, 255 - (255 - pictures) // 2, np.roll(pictures, 1, -1)):
        assert count_different_bits(hash_images(pictures), hash_images(changed)).diagonal().max() <= 40


def test_hashes_of_two_sizes_of_an_image_agree() -> None:
    pictures = smooth_pictures(10, 128)
    halves = pictures.reshape(10, 3, 64, 2, 64, 2).mean((3, 5)).astype(np.uint8)
    assert count_different_bits(hash_images(pictures), hash_images(halves)).diagonal().max() <= 8


def test_bits_are_counted_with_the_signs_of_odd_frequencies_turned() -> None:
    zero = np.zeros((1, HASH_BYTES), np.uint8)
    one = zero.copy()
    one[0, 0] = 0b10100001  # frequencies 0, 2 and 7 of the first row
    odd = np.full((1, HASH_BYTES), 0b01010101, np.uint8)
    assert count_different_bits(zero, one).tolist() == [[3]]
    assert count_different_bits(zero, odd).tolist() == [[0]]
    assert count_different_bits(odd, one).tolist() == [[3]]
    assert count_different_bits(zero, np.empty((0, HASH_BYTES), np.uint8)).shape == (1, 0)
