"""Tests of `ucds.math.constraints`: a partition is corrected as asked for, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from ucds.math.constraints import Constraints, carry_shares, constrain, split_in_two, unmet

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(5), 8)
VECTORS = (np.eye(5, 12)[GROUPS] + 0.05 * RNG.normal(size=(40, 12))).astype(np.float32)
# Group 0 is cut into clusters 0 and 4; groups 1 and 2 lie together in cluster 1.
FOUND = np.array([0, 1, 1, 2, 3])[GROUPS]
FOUND[:4] = 4


def group(*positions: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(positions, dtype=np.int64)


JOIN = (group(0, 1), group(4, 5))
DIVIDE = (group(8, 9), group(16, 17))


def test_clusters_that_belong_together_are_joined_whole() -> None:
    joined = constrain(FOUND, VECTORS, Constraints(together=(JOIN,)), 5)
    np.testing.assert_array_equal(joined, np.where(FOUND == 0, 4, FOUND))


def test_a_cluster_is_divided_between_two_groups_once_a_number_is_free() -> None:
    both = Constraints(together=(JOIN,), apart=(DIVIDE,))
    corrected = constrain(FOUND, VECTORS, both, 5)
    assert [sorted(set(corrected[g == GROUPS].tolist())) for g in range(5)] == [[4], [1], [0], [2], [3]]
    assert unmet(corrected, both) == 0
    alone = Constraints(apart=(DIVIDE,))
    np.testing.assert_array_equal(constrain(FOUND, VECTORS, alone, 5), FOUND)
    assert unmet(FOUND, alone) == 1
    assert unmet(constrain(FOUND, VECTORS, alone, 6), alone) == 0


def test_a_single_sample_is_moved_and_takes_none_with_it() -> None:
    moved = constrain(FOUND, VECTORS, Constraints(together=((group(9), group(24, 25)),)), 5)
    assert np.flatnonzero(moved != FOUND).tolist() == [9]
    assert moved[9] == FOUND[24]


def test_what_is_right_already_changes_nothing() -> None:
    known = Constraints(together=((group(24, 25), group(26)),), apart=((group(24), group(32)),))
    np.testing.assert_array_equal(constrain(FOUND, VECTORS, known, 5), FOUND)
    assert unmet(FOUND, known) == 0


def test_apart_counts_where_answers_contradict_each_other() -> None:
    against = Constraints(together=(JOIN,), apart=(JOIN,))
    corrected = constrain(FOUND, VECTORS, against, 5)
    assert corrected[4] != corrected[8]
    assert unmet(corrected, against) == 1


def test_constraints_among_some_of_the_samples_have_their_positions() -> None:
    known = Constraints(together=(JOIN,), apart=(DIVIDE,))
    assert known.samples.tolist() == [0, 1, 4, 5, 8, 9, 16, 17]
    some = np.array([1, 3, 5, 9])
    found = known.among(some)
    assert [[group.tolist() for group in pair] for pair in found.together] == [[[0], [2]]]
    assert found.apart == ()  # nothing is left to tell from 9
    assert Constraints().samples.tolist() == []


def test_shares_follow_the_clusters() -> None:
    shares = np.array([[0.8, 0.1, 0.1], [0.7, 0.3, 0], [0.2, 0.8, 0], [0.1, 0.2, 0.7]], dtype=np.float32)
    before, after = np.array([0, 0, 1, 2]), np.array([0, 0, 0, 1])  # 0 and 1 are joined, 2 is called 1
    carried = carry_shares(shares, before, after)
    np.testing.assert_allclose(carried, [[0.9, 0.1, 0], [1, 0, 0], [1, 0, 0], [0.3, 0.7, 0]], atol=1e-6)


def test_a_cluster_of_two_groups_falls_apart_more_clearly_than_one_group() -> None:
    second, two = split_in_two(VECTORS[8:24])
    assert len(set(second[:8].tolist())) == len(set(second[8:].tolist())) == 1
    _, one = split_in_two(VECTORS[8:16])
    assert two > 20 * max(one, 1)
    odd = np.concatenate([VECTORS[8:16], VECTORS[24:25]])
    assert split_in_two(odd)[1] == 0  # a single odd sample is no group


@pytest.mark.parametrize("rows", [np.ones((5, 3), np.float32), np.ones((1, 3), np.float32)])
def test_equal_rows_do_not_fall_apart(rows: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    assert split_in_two(rows)[1] == 0
