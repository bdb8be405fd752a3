"""Tests of what a watch is told of long work, and that it can end the work."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from ucds.math.domain_transport import cluster_domains
from ucds.math.spaces import make_spaces, mutual_neighbours
from ucds.math.vote import resample, vote
from ucds.math.watch import count_parts

K = 3
VECTORS = (np.eye(8)[np.arange(60) % K] + 0.1 * np.random.default_rng(0).normal(size=(60, 8))).astype(
    np.float32
)


class Told:
    """Keeps what it is told; raises an exception when some parts of one work are done."""

    def __init__(self, stop: tuple[str, int] | None = None) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self._stop = stop

    def __call__(self, work: str, done: int, total: int) -> None:
        self.calls.append((work, done, total))
        if (work, done) == self._stop:
            raise KeyboardInterrupt

    def works(self) -> dict[str, int]:
        """Total of each work, once it is known that all its parts were told in order."""
        totals = {work: total for work, _, total in self.calls}
        told = {work: [done for other, done, _ in self.calls if other == work] for work in totals}
        assert told == {work: list(range(total + 1)) for work, total in totals.items()}
        return totals


def cluster(told: Told) -> None:
    rng = np.random.default_rng(0)
    found = vote(make_spaces(VECTORS, K, watch=told), K, rng, starts=2, watch=told)
    votes = [one for space in found.spaces for one in space]
    resample(votes, None, 0.0, found.partition, K, rng, watch=told)


def test_every_part_of_a_vote_is_told_in_order() -> None:
    told = Told()
    cluster(told)
    starts = 4 * 4 * 2  # spaces, numbers of clusters, starts
    assert told.works() == {
        "find neighbours": 1,
        "k-means": starts,
        "find the consensus": 26,
        "repeat the vote in parts": 8,
    }


def test_transport_tells_of_each_plan() -> None:
    told = Told()
    cluster_domains([VECTORS], K, np.random.default_rng(0), starts=1, rounds=2, watch=told)
    assert told.works()["transport"] == 2


@pytest.mark.parametrize("stop", [("k-means", 3), ("find the consensus", 1), ("repeat the vote in parts", 0)])
def test_a_watch_ends_the_work(stop: tuple[str, int]) -> None:
    told = Told(stop)
    with pytest.raises(KeyboardInterrupt):
        cluster(told)
    assert told.calls[-1][:2] == stop


def test_work_without_parts_is_told_once() -> None:
    told = Told()
    count_parts(told, "nothing", 0)
    assert told.calls == [("nothing", 0, 0)]


def test_neighbours_that_are_found_in_blocks_are_those_of_all_samples() -> None:
    vectors = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
    told = Told()
    found = mutual_neighbours(vectors, 4, watch=told)
    assert told.works() == {"find neighbours": 2}
    whole = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(vectors).kneighbors_graph(vectors)
    assert ((found > 0) != (whole.minimum(whole.T) > 0)).nnz == 0
