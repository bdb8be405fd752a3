"""Stores the clustering in a target run, so that a person can review it without the encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ucds.data.content import KEY_BYTES, KEY_TYPE, Column, find_places, keys_of
from ucds.data.dataset import Dataset
from ucds.data.samples import BottleneckSamples, Samples, subset
from ucds.data.vectors import read_arrays
from ucds.encoders.spec import LENGTHS
from ucds.errors import DamagedFileError
from ucds.files import digest_of, parse_json, write_atomically
from ucds.math import novelty
from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.math.consensus import Memberships, Partition, blend, mean_shares, memberships, soften
from ucds.math.corrections import ASIDE
from ucds.math.doubts import Doubts
from ucds.math.parts import cut_into_parts
from ucds.received import require_few
from ucds.showing import shows
from ucds.training.loaded import Model
from ucds.training.run_folder import FEATURES_FILE, VOTES_FILE
from ucds.training.seeds import numpy_generator

MOST_SHARES = 2**26
"""Most numbers in the remembered matrix of samples by the provider's clusters."""

SOURCES = ("model", "clustering", "person")
"""Origin of a sample's cluster: the model, the clustering that a person has reviewed, or that person."""

_ARRAYS = ("ids", "n_clusters", "own", "partitions", "labels", "keys", "by_person", "proposed")

LABELS_WEIGHT = 0.5
"""Weight of a provider's labels beside the client's votes, in a review's questions."""


_FEW_CLUSTERS = 2**12  # numbers that may be given in any case
_MOST_VOTES = 256  # clusterings of many samples; those of 50,000 have 144, if a second opinion was taken
_TOGETHER = 50_000  # new samples whose features are held in memory


def most_clusters(n: int) -> int:
    """Return the largest number of clusters that ``n`` samples can have, including empty ones."""
    return max(2 * n, _FEW_CLUSTERS)


@shows("ids", "own", "n_clusters")
@dataclass(frozen=True, eq=False)
class Remembered:
    """The clustering of a run.

    A sample in no cluster has the number -1: a person has set it aside, or it waits. A run that was neither
    reviewed nor updated does not say what was done by a person: that a sample itself was named in a
    correction, and not a cluster that it was in.
    """

    ids: tuple[str, ...]  # of the samples that were clustered
    partitions: NDArray[np.integer[Any]]  # (P, n) own clusterings that voted
    own: Partition  # (n,) own consensus
    n_clusters: int  # of the run, K
    keys: Sequence[bytes]  # of the contents of the samples
    labels: FloatArray | None = None  # (n, K') share of each provider's label around a sample; unit rows
    by_person: NDArray[np.bool_] | None = None  # (n,)
    proposed: Partition | None = None  # (n,) cluster that is proposed for each sample, see `update`

    @property
    def waiting(self) -> NDArray[np.bool_]:
        """``(n,)`` whether each sample is in no cluster, and no person has set it aside."""
        outside = self.own == ASIDE
        return outside if self.by_person is None else np.asarray(outside & ~self.by_person)

    def doubts(self) -> Doubts:
        """Make the doubts about the clusters; the client's clusterings and any labels compare the groups."""
        votes = own_votes = memberships(list(self.partitions))
        if self.labels is not None:
            votes = blend(own_votes, Memberships(self.labels), LABELS_WEIGHT)
        inside, parts = np.flatnonzero(self.own != ASIDE), np.full(len(self.own), ASIDE)
        rng = numpy_generator(0, "review-parts")
        parts[inside] = cut_into_parts(own_votes[inside], self.own[inside], rng)
        found = Doubts(votes, self.own, parts, self.n_clusters)
        if self.proposed is not None:
            moves = np.flatnonzero(self.proposed != self.own)
            pairs = np.stack([self.own[moves], self.proposed[moves]], 1)
            kinds, place = np.unique(pairs, axis=0, return_inverse=True)
            found.proposed = [(moves[place == i], int(pair[1])) for i, pair in enumerate(kinds)]
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """Position of each sample, by its id."""
        return {name: place for place, name in enumerate(self.ids)}

    @property
    def digest(self) -> str:
        """Digest of the samples and of the clusters from which a review starts."""
        return digest_of(json.dumps(self.ids).encode(), self.own.astype(np.int64).tobytes())

    def shares(self, clusters: Partition, n_clusters: int, rows: IntArray | None = None) -> FloatArray:
        """Compute the shares ``(n, K)`` that a model of reviewed clusters ``(n,)`` is fitted to.

        With positions ``(m,)``, the shares of these samples are computed, as if there were no others.

        The shares are made as in the training. In the shares of single clusterings, the share of a sample's
        first cluster goes to its present one; shares of other clusters go where these clusters went. Samples
        that are set aside have no shares.
        """
        rows = np.arange(len(clusters)) if rows is None else rows
        before, clusters = self.own[rows], clusters[rows]
        inside = np.flatnonzero((before != ASIDE) & (clusters != ASIDE))
        own, now, everyone = before[inside], clusters[inside], np.arange(len(inside))
        voters = [one[rows[inside]] for one in self.partitions if one.max() < self.n_clusters]
        single = mean_shares(voters, np.full(len(voters), 1 / len(voters)), own, self.n_clusters)
        went = np.zeros((self.n_clusters, n_clusters))
        np.add.at(went, (own, now), 1)
        went /= np.maximum(went.sum(1, keepdims=True), 1)
        others = single.astype(np.float64)
        others[everyone, own] = 0
        carried = others @ went
        carried[everyone, now] += single[everyone, own]
        carried /= carried.sum(1, keepdims=True)
        shares = np.zeros((len(clusters), n_clusters), np.float32)
        shares[inside] = soften(now, carried.astype(np.float32))
        back = np.flatnonzero((before == ASIDE) & (clusters != ASIDE))
        shares[back, clusters[back]] = 1
        return shares

    def outlines(self, samples: Samples, features: FloatArray) -> Samples | None:
        """Return the remembered ``(m, d_f)`` features of samples; ``None`` if not all are remembered."""
        rows = find_places(*(Column(keys_of(each.keys).array) for each in (samples, self)))
        return None if (rows < 0).any() else BottleneckSamples(samples, features, rows)

    def fits(self, model: Model, data: Dataset, features: FloatArray) -> DoubleArray | None:
        """Compute the p-value ``(n,)`` of opened samples; NaN for those that the run knows by their content.

        The remembered samples have ``(m, d_f)`` features. ``None`` is returned if the run knows all samples,
        or if its encoder was trained on those that it knows: it fits them better than any others.
        """
        new = np.flatnonzero(~np.isin(keys_of(data.samples.keys).array, keys_of(self.keys).array))
        if not len(new) or model.stored.card.tune == "full":
            return None
        found = np.full(len(data.samples), np.nan)
        rng, lengths = numpy_generator(0, "fits"), model.stored.card.encoder.name == LENGTHS
        n_clusters = len(np.setdiff1d(self.own, [ASIDE]))
        known = features[novelty.draw_known(self.own, rng)]
        for rows in np.array_split(new, -(-len(new) // _TOGETHER)):
            given = model.outputs(Dataset(subset(data.samples, rows), data.view)).features
            found[rows] = novelty.fit(known, given, n_clusters, rng, lengths)
        return found

    def correct(
        self,
        keys: Sequence[bytes],
        clusters: Partition,
        confidence: FloatArray,
        probabilities: FloatArray | None = None,
    ) -> list[str] | None:
        """Replace what a model says of samples by what a person has reviewed, matched by their contents.

        Where the model agrees, its confidence stays. Otherwise the probabilities are the shares that the
        model was fitted to; a cluster that a person has given has probability 1. Samples that were set aside
        get the number -1, confidence 1 and no probability of any cluster; samples that wait get confidence 0.
        The arrays are changed in place: ``(m,)`` clusters, ``(m,)`` confidence in them, ``(m, K)``
        probabilities.

        Returns:
            One of :data:`SOURCES` for each sample; ``None`` if nobody has reviewed the run.
        """
        if self.by_person is None:
            return None
        order = np.argsort(~self.by_person, kind="stable")  # of copies, the one that a person has corrected
        known, first = np.unique(keys_of(self.keys).array[order], return_index=True)
        places = find_places(Column(keys_of(keys).array), Column(known))
        rows = order[first[places]]
        source = np.where(places < 0, 0, 1 + self.by_person[rows])  # positions in SOURCES
        here = np.flatnonzero((source == 2) | ((source == 1) & (clusters != self.own[rows])))
        rows, shares = rows[here], self.shares(self.own, self.n_clusters)
        given = np.flatnonzero(self.by_person & (self.own != ASIDE))
        shares[given] = np.eye(self.n_clusters)[self.own[given]]
        clusters[here] = self.own[rows]
        confidence[here] = np.where(self.own[rows] == ASIDE, self.by_person[rows], shares[rows].max(1))
        if probabilities is not None:
            probabilities[here] = shares[rows]
        return [SOURCES[kind] for kind in source.tolist()]


def number_alike(clusters: Partition, others: Partition) -> Partition:
    """Number clusters ``(n,)`` like the clusters of another partition with which they share most samples."""
    size = int(max(clusters.max(), others.max())) + 1
    common = np.zeros((size, size), dtype=np.int64)
    np.add.at(common, (clusters, others), 1)
    return np.asarray(linear_sum_assignment(common, maximize=True)[1][clusters], dtype=np.int64)


def write_remembered(folder: Path, remembered: Remembered) -> None:
    """Write what a run remembers into its folder."""
    partitions = remembered.partitions
    arrays: dict[str, Any] = {
        "ids": np.frombuffer(json.dumps(remembered.ids).encode(), np.uint8),
        "partitions": partitions.astype(np.min_scalar_type(partitions.max())),
        "own": remembered.own.astype(np.int64),
        "n_clusters": np.array(remembered.n_clusters),
        "keys": keys_of(remembered.keys).array.view(np.uint8).reshape(-1, KEY_BYTES),
    }
    if remembered.labels is not None:
        arrays["labels"] = remembered.labels.astype(np.float16)
    if remembered.by_person is not None:
        arrays["by_person"] = remembered.by_person
    if remembered.proposed is not None:
        arrays["proposed"] = remembered.proposed.astype(np.int64)
    write_atomically(folder / VOTES_FILE, lambda file: np.savez_compressed(file, **arrays))


def write_features(folder: Path, features: FloatArray) -> None:
    """Write the bottleneck features ``(n, d_f)`` of the samples that a run has clustered."""
    write_atomically(folder / FEATURES_FILE, lambda file: np.save(file, features))


def read_remembered(folder: Path) -> tuple[Remembered, FloatArray]:
    """Read what a run remembers, and the features of its samples."""
    path = folder / FEATURES_FILE
    try:
        features = read_arrays(path)[path.stem]
        path = folder / VOTES_FILE
        found = read_arrays(path, _ARRAYS)
        ids = tuple(parse_json(require_few(found["ids"].tobytes(), path)))
        n_clusters = int(found["n_clusters"])
        _require_fitting(len(ids), features, n_clusters, found)
        labels = found["labels"].astype(np.float32) if "labels" in found else None
        keys = Column[bytes](found["keys"].view(KEY_TYPE).ravel())
        partitions, by_person = found["partitions"], found.get("by_person")
        proposed = found.get("proposed")
        remembered = Remembered(ids, partitions, found["own"], n_clusters, keys, labels, by_person, proposed)
        return remembered, np.array(features, dtype=np.float32)
    except (OSError, DamagedFileError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}): train again") from None


def _require_fitting(n: int, features: Any, n_clusters: int, arrays: Mapping[str, Any]) -> None:
    """Make sure that arrays are about ``n`` samples, and name no more clusters than these can have."""
    own, partitions, keys = (arrays[name] for name in ("own", "partitions", "keys"))
    labels, by_person, proposed = map(arrays.get, ("labels", "by_person", "proposed"))
    wide, flat = [features, partitions.T, labels, keys], [own, by_person, proposed]
    fits = all(each is None or (each.ndim == 2 and len(each) == n) for each in wide)
    fits &= all(each is None or each.shape == (n,) for each in flat)
    fits &= own.dtype.kind == "i" and partitions.dtype.kind in "iu" and n_clusters <= most_clusters(n)
    fits &= partitions.size <= max(2**24, _MOST_VOTES * n) and (labels is None or labels.size <= MOST_SHARES)
    fits &= (keys.dtype, keys.shape[1]) == (np.uint8, KEY_BYTES)
    fits &= by_person is None or by_person.dtype == bool
    fits &= proposed is None or (proposed.dtype.kind == "i" and proposed.min() >= ASIDE)
    fits &= own.min() >= (0 if by_person is None else ASIDE)
    if not fits or partitions.min() < 0 or own.max() >= n_clusters or partitions.max() >= n:
        raise ValueError("its arrays do not fit together")
