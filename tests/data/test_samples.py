"""Subsets and validation splits."""

import numpy as np
import pytest

from ucds.data.samples import Samples, draw_samples, split_validation, subset
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError


def vectors(*sizes: int, seed: int = 0) -> VectorSamples:
    generator = np.random.default_rng(seed)
    names = "abcdefgh"
    return VectorSamples.from_arrays(
        {names[d]: generator.normal(size=(n, 3)).astype(np.float32) for d, n in enumerate(sizes)}
    )


def test_subset_addresses_the_parents_samples():
    parent = vectors(4, 5)
    part = subset(parent, [7, 0, 3])
    assert isinstance(part, Samples)
    assert len(part) == 3
    assert part.ids == ("7", "0", "3")
    assert part.domain.tolist() == [1, 0, 0]
    assert part.keys == (parent.keys[7], parent.keys[0], parent.keys[3])
    assert np.array_equal(part.read(np.array([2, 0])), parent.read(np.array([3, 7])))
    assert subset(part, [2, 0]).ids == ("3", "7")
    assert subset(parent, [1, 2]).fingerprint == subset(vectors(4, 5), [1, 2]).fingerprint
    assert subset(parent, [1, 2]).fingerprint != subset(parent, [2, 1]).fingerprint
    assert subset(parent, [1, 2]).fingerprint != subset(vectors(4, 5, seed=1), [1, 2]).fingerprint


def test_domains_without_samples_leave_a_subset():
    part = subset(vectors(2, 2, 2), [4, 5, 0])
    assert part.domain_names == ("a", "c")
    assert part.domain.tolist() == [1, 1, 0]
    kept = subset(vectors(2, 2, 2), [4, 5, 0], keep_domains=True)
    assert kept.domain_names == ("a", "b", "c")
    assert kept.domain.tolist() == [2, 2, 0]


@pytest.mark.parametrize("index", [[], [[0]], [-1], [9]])
def test_impossible_positions_are_refused(index):
    with pytest.raises(ValueError, match="position"):
        subset(vectors(4, 5), index)


def test_validation_split_is_by_domain_and_repeatable():
    samples = vectors(100, 20, 1)
    train, validation = split_validation(samples, 0.1, seed=0)
    assert np.bincount(validation.domain, minlength=3).tolist() == [10, 2, 0]
    assert sorted([*train.index, *validation.index]) == list(range(121))
    assert (np.diff(train.index) > 0).all()
    assert train.domain_names == validation.domain_names == samples.domain_names
    again = split_validation(vectors(100, 20, 1), 0.1, seed=0)[1]
    assert (again.index == validation.index).all()
    other = split_validation(samples, 0.1, seed=1)[1]
    assert (other.index != validation.index).any()


@pytest.mark.parametrize(("n", "fraction", "kept"), [(2, 0.99, 1), (3, 0.01, 1)])
def test_validation_takes_a_sample_of_each_domain_and_never_the_last(n, fraction, kept):
    train, validation = split_validation(vectors(n, n), fraction, seed=0)
    assert np.bincount(validation.domain).tolist() == [kept, kept]
    assert len(train) == 2 * (n - kept)


def test_nothing_to_validate_on_and_impossible_fractions_are_refused():
    with pytest.raises(UserError, match="one sample only"):
        split_validation(vectors(1, 1), 0.1, seed=0)
    for fraction in (0.0, 1.0, -1.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_validation(vectors(5), fraction, seed=0)


def test_at_most_so_many_samples_of_each_domain_are_drawn():
    samples = vectors(100, 20, 3)
    drawn = draw_samples(samples, 20, np.random.default_rng(0))
    assert np.bincount(samples.domain[drawn]).tolist() == [20, 20, 3]
    assert (np.diff(drawn) > 0).all()
    assert len(np.unique(drawn[:20] // 10)) > 5  # from all over the first domain
    assert drawn.tolist() == draw_samples(samples, 20, np.random.default_rng(0)).tolist()
    assert drawn.tolist() != draw_samples(samples, 20, np.random.default_rng(1)).tolist()
    assert draw_samples(samples, 100, np.random.default_rng(0)).tolist() == list(range(123))


def test_some_samples_are_drawn_before_others():
    first, second = np.array([7, 90]), np.arange(40, 60)
    drawn = draw_samples(vectors(100), 30, np.random.default_rng(0), (first, second))
    assert {7, 90, *range(40, 60)} < set(drawn.tolist())
    few = draw_samples(vectors(100), 10, np.random.default_rng(0), (first, second))
    assert {7, 90} < set(few.tolist()) < {7, 90, *range(40, 60)}
