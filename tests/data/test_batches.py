"""Balance, coverage and purity of the batches."""

import numpy as np
import pytest

from ucds.data.batches import DomainBalancedSampler


def domains(*sizes: int) -> np.ndarray:
    """Domains of the given sizes, interleaved rather than in blocks."""
    domain = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(0).permutation(domain)


@pytest.mark.parametrize(
    ("sizes", "batch_size", "counts", "steps"),
    [
        ((100, 100), 64, (32, 32), 4),
        ((2817, 498, 795), 64, (22, 21, 21), 65),
        ((7,), 64, (7,), 1),
        ((3, 200), 64, (32, 32), 4),
        ((5, 5, 5), 7, (3, 2, 2), 3),
    ],
)
def test_shares(sizes, batch_size, counts, steps):
    domain = domains(*sizes)
    sampler = DomainBalancedSampler(domain, batch_size, seed=0)
    assert sampler.counts == counts
    assert sampler.batch_size == sum(counts)
    assert sampler.steps_per_epoch == steps
    for step in range(30):
        assert (domain[sampler.batch(step)] == np.repeat(np.arange(len(sizes)), counts)).all()


def test_every_sample_comes_once_per_pass():
    domain = domains(50, 17)
    sampler = DomainBalancedSampler(domain, 10, seed=1)
    batches = np.stack([sampler.batch(step) for step in range(170)])
    for d, size in enumerate((50, 17)):
        stream = batches[:, 5 * d : 5 * d + 5].ravel()
        passes = stream.reshape(-1, size)
        assert (np.sort(passes, axis=1) == np.flatnonzero(domain == d)).all()
        assert len({tuple(one) for one in passes}) == len(passes), "every pass has an order of its own"


def test_a_batch_depends_on_seed_and_step_alone():
    domain = domains(40, 25)
    reference = DomainBalancedSampler(domain, 16, seed=5)
    expected = [reference.batch(step) for step in range(40)]
    for step in (39, 0, 17, 3, 38, 17):  # any order, by a sampler that has seen nothing else
        assert (DomainBalancedSampler(domain, 16, seed=5).batch(step) == expected[step]).all()
        assert (reference.batch(step) == expected[step]).all()
    other = DomainBalancedSampler(domain, 16, seed=6)
    assert any((other.batch(step) != expected[step]).any() for step in range(3))


def test_known_batches_stay_what_they_are():
    """Runs of earlier versions can be resumed and repeated."""
    sampler = DomainBalancedSampler(np.array([0, 0, 0, 0, 1, 1, 1]), 4, seed=0)
    known = {0: [0, 1, 4, 5], 1: [2, 3, 6, 5], 1000: [3, 1, 6, 4]}
    assert {step: sampler.batch(step).tolist() for step in known} == known
    assert sampler.batch(10**12).dtype == np.int64  # a late step costs no more than an early one


@pytest.mark.parametrize(
    ("domain", "batch_size"), [([], 4), ([0, 2], 4), ([1, 1], 4), ([0, 1, 2, 0, 1, 2], 2), ([0, 0], 0)]
)
def test_impossible_batches_are_refused(domain, batch_size):
    with pytest.raises(ValueError, match=r"domain|batch"):
        DomainBalancedSampler(np.array(domain, dtype=np.int64), batch_size, seed=0)
