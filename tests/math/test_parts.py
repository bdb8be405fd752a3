"""Groups are divided where the votes divide them, and clusters get coarser and finer step by step."""

import numpy as np
import pytest

from ucds.math.consensus import memberships
from ucds.math.parts import Groups, divide, divide_by_features, make_ladder

KINDS = np.repeat(np.arange(4), 10)
PAIRS = KINDS // 2
VOTES = memberships([KINDS, KINDS, KINDS, PAIRS, PAIRS, np.zeros(40, np.int64)])
"""Four kinds, of which two and two are often taken for one."""


def parts_of(groups: list[np.ndarray]) -> list[list[int]]:
    """The kinds in each group, in their order."""
    return sorted(np.unique(KINDS[group]).tolist() for group in groups)


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [[0, 1, 2, 3]]), (2, [[0, 1], [2, 3]]), (4, [[0], [1], [2], [3]])]
)
def test_a_group_is_divided_where_the_votes_divide_it(most: int, expected: list[list[int]]) -> None:
    groups = divide(VOTES, np.arange(40), most)
    assert parts_of(groups) == expected
    assert sorted(np.concatenate(groups).tolist()) == list(range(40))
    assert parts_of(divide(VOTES, np.arange(40), most, seen=20)) == expected  # the others follow


def test_samples_that_differ_in_their_features_alone_are_divided_by_these() -> None:
    directions = np.repeat(np.eye(3, dtype=np.float32), 5, axis=0)
    groups = divide_by_features(directions, np.arange(15), 3)
    assert sorted(group.tolist() for group in groups) == [[*range(5)], [*range(5, 10)], [*range(10, 15)]]
    assert len(divide_by_features(directions, np.arange(5), 3)) == 1  # they are all alike


def test_a_relation_is_1_between_groups_that_are_as_close_as_each_by_itself() -> None:
    groups = Groups(VOTES, [np.arange(5), np.arange(5, 10), np.array([0]), np.arange(10, 20)])
    np.testing.assert_allclose(groups.relations(groups)[0], [1, 1, 1, 0.5], rtol=1e-6)


@pytest.mark.parametrize("clusters", [PAIRS, KINDS])
def test_a_ladder_leads_from_leaves_by_the_present_clusters_to_few(clusters: np.ndarray) -> None:
    ladder = make_ladder(VOTES, KINDS, clusters, [])
    assert ladder.range == (1, 4)
    for n, expected in ((4, KINDS), (2, PAIRS), (1, np.zeros(40))):
        assert len(np.unique(np.stack([ladder.groups(n), expected]), axis=1).T) == n


def test_clusters_that_are_apart_are_not_joined_and_samples_left_out_stay_so() -> None:
    leaves = np.where(np.arange(40) % 10, KINDS, -1)
    ladder = make_ladder(VOTES, leaves, np.where(leaves < 0, -1, KINDS), [(0, 1)])
    assert ladder.range == (2, 4)
    coarse = ladder.groups(2)
    assert ((coarse < 0) == (leaves < 0)).all()
    assert coarse[1] != coarse[11]


def test_all_leaves_of_a_cluster_are_joined_before_clusters_are() -> None:
    """The clusters are not those that the votes would make."""
    clusters = KINDS % 2
    ladder = make_ladder(VOTES, KINDS, clusters, [])
    assert len(np.unique(np.stack([ladder.groups(2), clusters]), axis=1).T) == 2
