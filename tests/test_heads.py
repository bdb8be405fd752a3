"""A head computes what its formulas say, and a sample's features are equal to the bit in any company."""

import numpy as np
import pytest

from ucds.heads import Head, mean_direction, softmax


def make_head(width=37, d_f=20, k=5, unit=True):
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    return Head(draw(d_f, width), draw(d_f), draw(d_f, k), unit)


def below(n, width=37):
    return np.random.default_rng(1).normal(size=(n, width)).astype(np.float32)


@pytest.mark.parametrize("unit", [True, False])
def test_features_and_probabilities_are_those_of_the_formulas(unit):
    head, rows = make_head(unit=unit), below(150)
    seen = rows.astype(np.float64) / (np.linalg.norm(rows, axis=1, keepdims=True) if unit else 1)
    features = seen @ head.weight.T.astype(np.float64) + head.bias
    assert np.allclose(head.features(rows), features, rtol=1e-5, atol=1e-5)
    powers = np.exp(features @ head.prototypes)
    found = head.probabilities(head.features(rows))
    assert found.dtype == np.float32
    assert np.allclose(found, powers / powers.sum(1, keepdims=True), atol=1e-4)


def test_a_row_of_zeros_has_no_direction_and_stays_finite():
    head = make_head()
    assert np.array_equal(head.features(np.zeros((1, 37), np.float32))[0], head.bias)
    assert np.array_equal(softmax(np.array([[1e5, -1e5]], np.float32)), [[1.0, 0.0]])


@pytest.mark.parametrize("size", [1, 8, 63, 64, 65])
def test_samples_are_equal_to_the_bit_whatever_is_computed_with_them(size):
    head, rows = make_head(width=512, d_f=256, k=31), below(130, 512)
    whole = head.probabilities(head.features(rows))
    parts = [rows[start : start + size] for start in range(0, 130, size)]
    assert np.array_equal(np.concatenate([head.probabilities(head.features(part)) for part in parts]), whole)


def test_one_mean_for_all_and_a_mean_for_each_give_the_same_bits():
    head, rows = make_head(), below(70)
    mean = mean_direction([rows[:30], rows[30:]])
    assert np.allclose(mean, (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(0), atol=1e-6)
    means = np.full((70, 37), np.nan, np.float32)
    means[::2] = mean
    found = head.features(rows, means)
    assert np.array_equal(found[::2], head.recentred(mean).features(rows)[::2])
    assert np.array_equal(found[1::2], head.features(rows)[1::2])


def test_the_fingerprint_changes_with_any_prototype():
    head, other = make_head(), make_head()
    assert head.fingerprint == other.fingerprint
    other.prototypes[3, 2] += 1e-3
    assert head.fingerprint != other.fingerprint
    assert (head.n_clusters, head.bottleneck_width, head.width) == (5, 20, 37)
