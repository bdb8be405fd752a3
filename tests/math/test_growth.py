"""New samples join clusters, and clusters keep their numbers."""

import numpy as np

from ucds.math.consensus import memberships
from ucds.math.growth import join, keep_numbers, worth_proposing

NONE = np.zeros(8, bool)


def test_new_samples_join_the_cluster_that_the_votes_put_them_in_unless_a_person_set_them_aside() -> None:
    votes = memberships([np.array([0, 0, 0, 1, 1, 1, 0, 1])])
    clusters = np.array([7, 7, 7, 2, 2, 2, -1, -1])
    assert join(votes, clusters, NONE).tolist() == [7, 7, 7, 2, 2, 2, 7, 2]
    assert join(votes, clusters, np.arange(8) == 6).tolist() == [7, 7, 7, 2, 2, 2, -1, 2]


def test_an_old_sample_moves_only_if_it_gains_much() -> None:
    kinds, other = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1, 1])
    clusters = kinds.copy()
    for against, moves in ((6, False), (9, True)):  # of ten votes
        votes = memberships([other] * against + [kinds] * (10 - against))
        assert (join(votes, clusters, NONE)[3] == 1) == moves
        assert join(votes, clusters, np.arange(8) == 3)[3] == 0  # a person has placed it


def test_the_largest_part_of_a_cluster_keeps_its_number() -> None:
    before, after = np.array([3, 3, 3, 3, 3, 1, 1, -1]), np.array([0, 0, 0, 2, 2, 1, 1, 1])
    assert keep_numbers(after, before, 5).tolist() == [3, 3, 3, 5, 5, 1, 1, 1]

    # Where two become one, it has the number of the larger.
    before, after = np.array([0, 0, 2, 2, 2, 1, 1, 1]), np.array([4, 4, 4, 4, 4, 0, 0, 0])
    assert keep_numbers(after, before, 3).tolist() == [2, 2, 2, 2, 2, 1, 1, 1]
    # A group of new samples gets a number that none has had.
    before, after = np.array([0, 0, 2, 2, -1, -1, -1, -1]), np.array([1, 1, 0, 0, 2, 2, 3, 3])
    assert keep_numbers(after, before, 6).tolist() == [0, 0, 2, 2, 6, 6, 7, 7]


def test_single_samples_are_not_worth_a_proposal() -> None:
    clusters, proposed = np.array([0, 0, 0, 0, 1, 1, -1, -1]), np.array([0, 1, 1, 1, 1, 0, 1, 1])
    assert worth_proposing(proposed, clusters, 3).tolist() == [0, 1, 1, 1, 1, 1, -1, -1]
