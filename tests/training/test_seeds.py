"""Tests of derived seeds: a function of seed and purpose, and the published values."""

from __future__ import annotations

import numpy as np

from ucds.training.seeds import derive, numpy_generator, step_seeds, torch_generator


def test_the_words_are_their_checksums() -> None:
    """A change here changes every result: 0x352441c2 is the CRC-32 of "abc"."""
    expected = np.random.SeedSequence([7, 0x352441C2, 5])
    np.testing.assert_array_equal(derive(7, "abc", 5).generate_state(2), expected.generate_state(2))
    assert numpy_generator(7, "abc", 5).random() == np.random.default_rng(expected).random()
    assert torch_generator(7, "abc", 5).initial_seed() == int(expected.generate_state(1)[0])


def test_a_steps_numbers_are_three_independent_streams() -> None:
    found = step_seeds(0, "s", 4)
    augmentation, other, layers = derive(0, "s", 4).spawn(3)
    assert found.augmentation.initial_seed() == int(augmentation.generate_state(1)[0])
    assert found.rng.random() == np.random.default_rng(other).random()
    assert found.layers == int(layers.generate_state(1)[0])
