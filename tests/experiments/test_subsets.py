"""The paper's imbalanced subset."""

import numpy as np

from ucds.data.ground_truth import GroundTruth
from ucds.experiments.subsets import imbalanced_subset, long_tail_subset, small_subset


def made_up() -> tuple[GroundTruth, np.ndarray]:
    """Five classes; 10, 7, 20, 4, 9 samples of them in domain 0, one more of each in domain 1."""
    sizes = np.array([10, 7, 20, 4, 9])
    classes = np.concatenate([np.repeat(np.arange(5), sizes), np.repeat(np.arange(5), sizes + 1)])
    domain = np.repeat([0, 1], [sizes.sum(), sizes.sum() + 5])
    order = np.random.default_rng(7).permutation(len(classes))
    return GroundTruth(tuple("abcde"), classes[order]), domain[order]


def test_the_first_half_of_the_classes_becomes_rare():
    truth, domain = made_up()
    kept = imbalanced_subset(truth, domain)
    for d, expected in enumerate(([3, 2, 20, 4, 9], [3, 2, 21, 5, 10])):
        assert np.bincount(truth.classes[kept][domain[kept] == d], minlength=5).tolist() == expected
    assert (np.diff(kept) > 0).all()


def test_the_choice_repeats_and_follows_the_seed():
    truth, domain = made_up()
    assert (imbalanced_subset(truth, domain) == imbalanced_subset(truth, domain)).all()
    assert (imbalanced_subset(truth, domain) != imbalanced_subset(truth, domain, seed=1)).any()


def test_the_choice_in_a_domain_does_not_depend_on_the_others():
    truth, domain = made_up()
    both = imbalanced_subset(truth, domain)
    alone = np.flatnonzero(domain == 1)
    kept = imbalanced_subset(GroundTruth(truth.names, truth.classes[alone]), domain[alone])
    assert (alone[kept] == both[domain[both] == 1]).all()


def test_a_long_tail_falls_off_to_a_tenth():
    classes = np.repeat(np.arange(5), 100)
    truth, domain = GroundTruth(tuple("abcde"), classes), np.zeros(500, dtype=np.int64)
    sizes = np.bincount(classes[long_tail_subset(truth, domain, ratio=10.0, seed=3)], minlength=5)
    assert sorted(sizes, reverse=True) == [100, 56, 31, 17, 10]
    assert (long_tail_subset(truth, domain) != long_tail_subset(truth, domain, seed=1)[: sizes.sum()]).any()


def test_a_rare_class_keeps_two_samples_of_a_long_tail():
    truth, domain = GroundTruth(("a", "b"), np.repeat([0, 1], 4)), np.zeros(8, dtype=np.int64)
    kept = long_tail_subset(truth, domain, ratio=100.0)
    assert sorted(np.bincount(truth.classes[kept])) == [2, 4]


def test_a_small_subset_is_of_its_size_and_follows_the_seed():
    positions = np.arange(50, 400)
    kept = small_subset(positions, seed=1)
    assert len(kept) == 100
    assert (np.diff(kept) > 0).all()
    assert set(kept) <= set(positions)
    assert (kept != small_subset(positions, seed=2)).any()
    assert (small_subset(positions[:30]) == positions[:30]).all()
