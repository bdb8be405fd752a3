"""Finds new samples of kinds that a clustering does not know, and groups of them that form a new kind.

Old samples are those that were clustered, new ones have come since. Under the *null hypothesis* the new ones
are of the same kinds in the same shares, so that old and new could be exchanged. Three questions are asked,
each with a rate of false alarms that holds under the null hypothesis.

1. **Does one new sample fit, seen by itself?** The statistic is the distance of its direction from that of
   the nearest old sample. Its p-value is *conformal*: the share of old samples, the new one counted in, that
   lie as far from their nearest other old sample (:func:`fit_alone`). Directions are taken in axes of the old
   samples. The part of a new sample outside these axes is lost, which makes it look nearer, so that in small
   runs false alarms are rarer than stated. Axes scaled to the old samples would make it look farther.
2. **Which of a batch fit?** Old and new samples are represented together, in axes that are fitted to both, so
   that neither side has an advantage. The statistic is the share of new samples among the nearest neighbours
   of a sample. Old samples of known kinds have new neighbours, too; their shares are compared with those of
   new samples, again by conformal p-values (:func:`fit_together`). A batch with other shares of the known
   kinds has more false alarms; :func:`reject` is hardly affected, because it needs many small p-values.
3. **Is there a group of a new kind?** Votes about all samples join them to a tree, which ignores which
   samples are new. For each node that is not too small for a cluster, the statistic is minus the logarithm of
   the hypergeometric tail: how unlikely it is that this share is new by chance. Nodes overlap, and there are
   many; so the threshold is the 97 % point of the largest statistic of all nodes over permutations of old and
   new (:func:`scan`). The topmost nodes above it are groups of new kinds.

Sources:
    V. Vovk, A. Gammerman and G. Shafer, Algorithmic Learning in a Random World, 2005 (conformal p-values).
    S. Bates, E. Candes, L. Lei, Y. Romano and M. Sesia, Testing for outliers with conformal p-values, 2023.
    M. Schilling, Multivariate two-sample tests based on nearest neighbors, 1986.
    Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, 1995.
    M. Kulldorff, A spatial scan statistic, 1997; its threshold after P. Westfall and S. Young, 1993.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.kmeans import REPRESENTATIVES, draw_representatives
from ucds.math.spaces import principal_space, unit_rows

if TYPE_CHECKING:
    from ucds.math.consensus import Memberships

ALARMS = 0.05
"""Stated rate of false alarms for samples."""

GROUP_ALARMS = 0.03
"""Stated rate of false alarms for updates: a group is a new kind although none is. In 200 updates, at most
5 % are false with a probability of 95 %."""

FEWEST_TOGETHER = 32
"""Least number of new samples that are tested together as a batch."""

_LEAST_NODE = 0.2  # of the new samples of an average cluster
_PURE, _SMALLEST = 0.9, 3  # share of new samples in a node, and their number, at least
_PERMUTATIONS = 499
_SEEN, _BLOCK = REPRESENTATIVES, 2000  # samples in a tree at most; rows of a matrix of distances
_FEWEST_NEIGHBOURS, _MOST_NEIGHBOURS = 10, 20  # half an average cluster, within these bounds

Mask = NDArray[np.bool_]


def draw_known(clusters: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw positions of at most 3,000 samples in clusters, with which new ones are compared."""
    known = np.flatnonzero(clusters >= 0)
    return known[draw_representatives(len(known), rng)]


def conformal(scores: DoubleArray, known: DoubleArray) -> DoubleArray:
    """Return the p-value ``(m,)`` of each score: the share of known scores ``(n,)``, and itself, as large."""
    ordered = np.sort(known)
    as_large = len(ordered) - np.searchsorted(ordered, scores - 1e-9)
    return np.asarray((1 + as_large) / (len(ordered) + 1))


def reject(p_values: DoubleArray, level: float = ALARMS) -> Mask:
    """Choose the samples ``(n,)`` of a batch that fit nowhere; at most a share of ``level`` is wrong.

    Under the null hypothesis, none is chosen with probability ``1 - level``. Samples with NaN do not count.
    """
    batch = np.sort(p_values[~np.isnan(p_values)])
    below = batch[batch <= level * np.arange(1, len(batch) + 1) / max(len(batch), 1)]
    return np.asarray(p_values <= below.max(initial=-1.0))


def fit_alone(old: FloatArray, new: FloatArray) -> DoubleArray:
    """Compute the p-value ``(m,)`` of each new sample by itself; arguments as in :func:`fit_together`."""
    if len(old) < 2 or not len(new):
        return np.ones(len(new))
    known, others = unit_rows(old), unit_rows(new)
    return conformal(_nearest(known, others, 1)[1][:, 0], _nearest(known, known, 1, apart=True)[1][:, 0])


def fit_together(
    old: FloatArray,
    new: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
    lengths: bool = False,
) -> DoubleArray:
    """Compute the p-value ``(m,)`` of each new sample of a batch.

    Old features ``(n, d)`` are of samples that were clustered, see :func:`draw_known`. If there are more
    than 3,000 new ones ``(m, d)``, a random part of them are compared with each other, and the others with
    this part. A neighbourhood is half an average cluster, of 10 to 20 samples.
    """
    if len(old) < 2 or not len(new):
        return np.ones(len(new))
    drawn = draw_representatives(len(new), rng)
    both, is_new = np.concatenate([old, new[drawn]]), np.arange(len(old) + len(drawn)) >= len(old)
    space, see = principal_space(both, lengths)
    count = int(np.clip(len(both) / n_clusters / 2, _FEWEST_NEIGHBOURS, _MOST_NEIGHBOURS))
    shares = is_new[_nearest(space, space, min(count, len(both) - 1), apart=True)[0]].mean(1)
    found, rest = np.empty(len(new)), np.setdiff1d(np.arange(len(new)), drawn)
    found[drawn] = shares[is_new]
    if len(rest):
        found[rest] = is_new[_nearest(space, see(new[rest]), count)[0]].mean(1)
    return conformal(found, shares[~is_new])


def fit(
    old: FloatArray, new: FloatArray, n_clusters: int, rng: np.random.Generator, lengths: bool = False
) -> DoubleArray:
    """Compute the p-value ``(m,)`` of each new sample: together from 32 on, otherwise each by itself.

    Arguments are those of :func:`fit_together`.
    """
    if len(new) < FEWEST_TOGETHER:
        return fit_alone(old, new)
    return fit_together(old, new, n_clusters, rng, lengths)


def scan(
    votes: Memberships, is_new: Mask, n_clusters: int, rng: np.random.Generator, alarms: float = GROUP_ALARMS
) -> list[IntArray]:
    """Find the groups of new kinds: the topmost significant nodes of the tree of old and new samples.

    At most 3,000 samples are examined, up to half of them new.

    Returns positions of the new samples of each group, ascending. A node has at least a fifth of the new
    samples of an average cluster. The generator also orders the samples, by which ties in a tree are cut.
    """
    from scipy.stats import hypergeom  # predictions need neither

    from ucds.math.consensus import average_tree

    new, old = np.flatnonzero(is_new), np.flatnonzero(~is_new)
    chosen = new[draw_representatives(len(new), rng, max(_SEEN // 2, _SEEN - len(old)))]
    others = old[draw_representatives(len(old), rng, _SEEN - len(chosen))]
    order = rng.permutation(np.concatenate([chosen, others]))
    n, marks = len(order), is_new[order]
    if len(chosen) < _SMALLEST or len(others) < _SMALLEST:
        return []
    least = max(_SMALLEST, _LEAST_NODE * len(chosen) / n_clusters)
    nodes, parents = _nodes(average_tree(votes[order]), n, least)
    sizes = np.asarray(nodes.sum(1)).ravel().astype(np.int64)[:, None]
    drawn = np.stack([marks, *(rng.permutation(marks) for _ in range(_PERMUTATIONS))], 1)
    counts = np.rint(nodes @ drawn.astype(np.float32)).astype(np.int64)
    worth = (counts >= _PURE * sizes) & (counts >= _SMALLEST)
    statistics = np.zeros(counts.shape)
    node, draw = np.nonzero(worth)
    statistics[node, draw] = -hypergeom.logsf(counts[node, draw] - 1, n, len(chosen), sizes[node, 0])
    threshold = np.quantile(statistics[:, 1:].max(0), 1 - alarms, method="higher")
    significant = worth[:, 0] & (statistics[:, 0] > threshold)
    groups = []
    for place in np.flatnonzero(significant):
        above = parents[place]
        while above >= 0 and not significant[above]:
            above = parents[above]
        if above < 0:
            rows = order[nodes[[place]].indices]
            groups.append(np.sort(rows[is_new[rows]]))
    return groups


def _nearest(
    known: FloatArray, others: FloatArray, count: int, *, apart: bool = False
) -> tuple[IntArray, DoubleArray]:
    """Find the nearest known vectors of others, unordered, with squared distances; ``apart`` from itself."""
    squares, places, distances = np.square(known).sum(1), [], []
    for start in range(0, len(others), _BLOCK):
        block = others[start : start + _BLOCK]
        between = squares + np.square(block).sum(1)[:, None] - 2 * (block @ known.T)
        if apart:
            between[np.arange(len(block)), np.arange(start, start + len(block))] = np.inf
        places.append(np.argpartition(between, count - 1, axis=1)[:, :count].copy())  # not all of the block
        distances.append(np.take_along_axis(between, places[-1], 1))
    return np.concatenate(places), np.concatenate(distances).astype(np.float64)


def _nodes(tree: DoubleArray, n: int, least: float) -> tuple[sparse.csr_array, IntArray]:
    """Return a tree's nodes with at least ``least`` samples, ``(g, n)``, and the node above each, or -1."""
    above = np.full(2 * n, -1)  # its last entry stands for the node above the root
    above[tree[:, :2].astype(np.int64).ravel()] = np.repeat(np.arange(n, 2 * n - 1), 2)
    kept = np.flatnonzero(np.concatenate([np.ones(n), tree[:, 3]]) >= least)
    place = np.full(2 * n, -1)
    place[kept] = np.arange(len(kept))
    rows, leaves = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    at = np.arange(n)
    while (at >= 0).any():  # all leaves climb together, one node at a time
        inside = np.flatnonzero(place[at] >= 0)
        rows.append(place[at[inside]])
        leaves.append(inside)
        at = above[at]
    entries = (np.concatenate(rows), np.concatenate(leaves))
    members = sparse.csr_array((np.ones(len(entries[0]), np.float32), entries), shape=(len(kept), n))
    return members, place[above[kept]]
