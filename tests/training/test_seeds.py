"""Tests of derived seeds: a function of seed and purpose, and the published values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ucds.training.seeds import derive, numpy_generator, step_seeds, torch_generator


def test_equal_seeds_and_names_give_equal_draws() -> None:
    assert np.array_equal(numpy_generator(3, "a", 1).random(9), numpy_generator(3, "a", 1).random(9))
    one, other = (torch.rand(9, generator=torch_generator(3, "a", 1)) for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("names", [("b", 1), ("a", 2), ("a",), (1, "a"), ("a", 1, 7)])
def test_other_names_give_other_draws(names: tuple[str | int, ...]) -> None:
    assert numpy_generator(3, *names).random() != numpy_generator(3, "a", 1).random()
    assert numpy_generator(4, "a", 1).random() != numpy_generator(3, "a", 1).random()


def test_the_words_are_their_checksums() -> None:
    """A change here changes every result: 0x352441c2 is the CRC-32 of "abc"."""
    expected = np.random.SeedSequence([7, 0x352441C2, 5]).generate_state(2)
    np.testing.assert_array_equal(derive(7, "abc", 5).generate_state(2), expected)


def test_a_steps_numbers_are_three_independent_streams() -> None:
    first, again, next_step = step_seeds(0, "s", 4), step_seeds(0, "s", 4), step_seeds(0, "s", 5)
    assert torch.equal(
        torch.rand(5, generator=first.augmentation), torch.rand(5, generator=again.augmentation)
    )
    assert first.rng.random() == again.rng.random() != next_step.rng.random()
    assert first.layers == again.layers != next_step.layers
    augmentation, other, layers = derive(0, "s", 4).spawn(3)
    assert first.layers == int(layers.generate_state(1)[0])
    assert step_seeds(0, "s", 4).rng.random() == np.random.default_rng(other).random()
    seed = int(augmentation.generate_state(1)[0])
    assert step_seeds(0, "s", 4).augmentation.initial_seed() == seed


def test_the_global_generators_stay_as_they_are() -> None:
    before = torch.get_rng_state()
    step_seeds(0, "s", 0)
    torch_generator(0, "s")
    assert torch.equal(torch.get_rng_state(), before)
