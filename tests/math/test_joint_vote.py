"""Tests of the vote of several encoders."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from ucds.math.arrays import FloatArray
from ucds.math.joint_vote import JointVote, column_scales, join_votes, split_columns, weigh_encoders
from ucds.math.partitions import memberships
from ucds.math.spaces import centre, make_spaces
from ucds.math.vote import vote

N, K = 80, 4
TRUTH = np.arange(N) % K


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(noise: float, seed: int = 0) -> FloatArray:
    return (np.eye(8)[TRUTH] + noise * rng(seed).normal(size=(N, 8)) + 0.5).astype(np.float32)


CLEAR, BLURRED = blobs(0.1), blobs(0.35, 1)
NOISE = rng(2).normal(size=(N, 8)).astype(np.float32)


def together(*blocks: FloatArray) -> JointVote:
    draw = rng()
    spaces = [make_spaces(block, K) for block in blocks]
    return join_votes([vote(one, K, draw, starts=2) for one in spaces], spaces, K, draw)


def rand_index(found: JointVote) -> float:
    return float(adjusted_rand_score(TRUTH, found.partition))


def test_one_encoder_votes_as_before() -> None:
    spaces = make_spaces(BLURRED, K)
    expected = vote(spaces, K, rng(), starts=2)
    found = join_votes([expected], [spaces], K, rng())
    np.testing.assert_array_equal(found.partition, expected.partition)
    assert (found.memberships != expected.memberships).nnz == 0
    assert found.weights.tolist() == [1]
    assert found.vote_weights is None
    assert found.strongest == 0


@pytest.mark.parametrize("blocks", [(CLEAR, NOISE), (NOISE, CLEAR)])
def test_noise_counts_for_next_to_nothing_wherever_it_stands(blocks: tuple[FloatArray, FloatArray]) -> None:
    found = together(*blocks)
    assert blocks[found.strongest] is CLEAR
    assert found.weights.max() > 0.99
    assert found.weights.sum() == pytest.approx(1)
    assert rand_index(found) == 1
    assert found.own.spaces is found.encoders[found.strongest].spaces
    np.testing.assert_array_equal(found.own.partition, found.partition)


def test_two_blurred_views_of_the_same_groups_are_better_than_each() -> None:
    one, other = blobs(0.45, 7), blobs(0.45, 8)
    alone = max(rand_index(together(one)), rand_index(together(other)))
    assert rand_index(together(one, other)) > alone + 0.02


def test_equal_encoders_count_alike_and_change_nothing() -> None:
    found, alone = together(CLEAR, CLEAR), together(CLEAR)
    np.testing.assert_allclose(found.weights, 0.5, atol=0.2)
    assert adjusted_rand_score(found.partition, alone.partition) == 1


def test_votes_have_the_weights_of_their_encoders() -> None:
    found = together(CLEAR, BLURRED)
    assert found.vote_weights is not None
    first = sum(map(len, found.encoders[0].spaces))
    assert len(found.votes) == len(found.vote_weights) == 2 * first
    assert found.vote_weights[:first].sum() == pytest.approx(found.weights[0])
    own = [(one.memberships @ one.memberships.T).toarray() for one in found.encoders]
    expected = found.weights[0] * own[0] + found.weights[1] * own[1]
    np.testing.assert_allclose((found.memberships @ found.memberships.T).toarray(), expected, atol=1e-5)


def test_weights_follow_the_strengths() -> None:
    np.testing.assert_allclose(weigh_encoders([0.6, 0.6]), 0.5)
    strong, weak = weigh_encoders([0.8, 0.76])
    assert strong / weak == pytest.approx((0.8 / 0.76) ** 60, rel=1e-4)
    assert weigh_encoders([0.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert weigh_encoders([1.0]) == pytest.approx(1)


def test_partitions_may_have_weights() -> None:
    other = np.arange(N) % 3
    joined = memberships([TRUTH, other], np.array([3.0, 1.0], np.float32))
    expected = 0.75 * (TRUTH[:, None] == TRUTH) + 0.25 * (other[:, None] == other)
    np.testing.assert_allclose((joined @ joined.T).toarray(), expected, atol=1e-6)


def test_columns_are_split_and_scaled_by_encoder() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert split_columns(vectors, ())[0] is vectors
    first, second = split_columns(vectors, (2, 4))
    np.testing.assert_array_equal(np.hstack([first, second]), vectors)
    assert first.shape == (2, 2)
    scales = column_scales((2, 4), np.array([0.9, 0.1], np.float32))
    np.testing.assert_allclose(scales, [np.sqrt(1.8)] * 2 + [np.sqrt(0.2)] * 4, rtol=1e-6)
    assert (column_scales((2, 4), np.array([1.0, 0.0], np.float32)) > 0).all()


def test_scaled_features_have_the_length_of_unscaled_ones() -> None:
    units = np.hstack([block / np.linalg.norm(block, axis=1, keepdims=True) for block in (CLEAR, NOISE)])
    scaled = units * column_scales((8, 8), np.array([0.7, 0.3], np.float32))
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), np.linalg.norm(units, axis=1), rtol=1e-5)
    # Without weight, an encoder is as good as absent.
    alone = units * column_scales((8, 8), np.array([1.0, 0.0], np.float32))
    np.testing.assert_allclose(centre(alone)[:, :8], centre(CLEAR), atol=1e-3)
