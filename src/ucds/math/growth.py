"""Lets a clustering grow: new samples join its clusters, which keep their numbers.

A new clustering of more samples is a different one: its numbers mean nothing, and even if clusters are
matched, one sample in ten changes its cluster. So old samples have priority. All samples, old and new, vote
anew. New ones join the cluster with which their mean co-association is largest. Then all are refined, but an
old sample moves only if it gains much, and never if a person has placed it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ucds.math.consensus import Memberships, Partition, refine

GAIN = 0.3
"""Least gain in mean co-association for an old sample to move. With 0.2, two more in a
hundred move, and as many are right; without a limit, one in ten moves."""


def join(votes: Memberships, clusters: Partition, held: NDArray[np.bool_]) -> Partition:
    """Let samples join clusters that keep their numbers.

    Clusters are ``(n,)`` numbers, -1 for all that join. Samples that are held stay where they are, be it in
    no cluster.
    """
    numbers = np.unique(clusters[clusters >= 0])
    places = np.where(clusters < 0, -1, np.searchsorted(numbers, clusters))
    gain = np.where(held, np.inf, np.where(clusters < 0, 0, GAIN)).astype(np.float32)
    joined = refine(votes, places, len(numbers), gain=gain)
    return np.where(joined < 0, -1, numbers[joined])


def keep_numbers(after: Partition, before: Partition, next_number: int) -> Partition:
    """Give clusters ``(n,)`` the numbers that their samples had before, ``(n,)`` with -1 for none.

    A cluster gets the number of the old cluster from which most of its samples come. If an old cluster was
    divided, its largest part keeps the number, and the others get new numbers from ``next_number`` on. If two
    were joined, the number of the larger one stays.
    """
    groups, rows = np.unique(after, return_inverse=True)
    known = before >= 0
    counts = np.zeros((len(groups), next_number), np.int64)
    np.add.at(counts, (rows[known], before[known]), 1)
    from_, heirs = counts.argmax(1), counts.argmax(0)
    keeps = (heirs[from_] == np.arange(len(groups))) & (counts.max(1) > 0)
    numbers = np.where(keeps, from_, 0)
    numbers[~keeps] = next_number + np.arange((~keeps).sum())
    return np.asarray(numbers[rows], dtype=np.int64)


def worth_proposing(proposed: Partition, clusters: Partition, least: int) -> Partition:
    """Keep those proposals ``(n,)`` that would move groups of at least ``least`` samples."""
    pairs = np.stack([clusters, proposed])
    _, place, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    return np.where((counts[place] >= least) & (clusters >= 0), proposed, clusters)
