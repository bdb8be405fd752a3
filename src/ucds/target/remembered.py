"""What a target run remembers of its clustering, so that a person can review it without the encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ucds.data.content import KEY_BYTES, KEY_TYPE, Column, find_places, keys_of
from ucds.data.vectors import read_arrays
from ucds.errors import DamagedFileError
from ucds.files import digest_of, parse_json, write_atomically
from ucds.math.arrays import FloatArray
from ucds.math.consensus import Memberships, Partition, blend, mean_shares, memberships, soften
from ucds.math.doubts import Doubts, cut_into_parts
from ucds.received import require_few
from ucds.training.run_folder import FEATURES_FILE, VOTES_FILE
from ucds.training.seeds import numpy_generator

OUTSIDE = -1
"""Number in place of a cluster, for a sample in none: it waits for a person's word, or has it."""

MOST_SHARES = 2**26
"""Numbers in the matrix of samples and the provider's clusters that is remembered."""

SOURCES = ("model", "clustering", "person")
"""What gave a sample its cluster: the model, the clustering that a person has reviewed, or that person."""

_BY_SAMPLE = ("own", "partitions", "labels", "keys", "by_person", "proposed")
_ARRAYS = ("ids", "n_clusters", *_BY_SAMPLE)

LABELS_WEIGHT = 0.5
"""Weight of a provider's labels beside the own votes, where it is asked what belongs together."""


@dataclass(frozen=True, eq=False)
class Remembered:
    """The clustering of a run.

    Attributes:
        ids: ids of the samples that were clustered.
        partitions: ``(P, n)`` own clusterings that voted.
        own: ``(n,)`` own consensus; :data:`OUTSIDE` for samples in no cluster.
        n_clusters: number of clusters of the run, K.
        labels: ``(n, K')`` share of each of the provider's labels among a sample and its neighbours, rows of
            unit length; ``None`` without labels.
        keys: content keys of the samples.
        by_person: ``(n,)`` whether a person has corrected the cluster of each sample; ``None`` in a run that
            was neither reviewed nor updated.
        proposed: ``(n,)`` cluster that each sample would have if all were clustered anew, see
            :func:`ucds.target.update.update`; ``None`` if nothing is proposed.
    """

    ids: tuple[str, ...]
    partitions: NDArray[np.int64]
    own: Partition
    n_clusters: int
    keys: Sequence[bytes]
    labels: FloatArray | None = None
    by_person: NDArray[np.bool_] | None = None
    proposed: Partition | None = None

    @property
    def waiting(self) -> NDArray[np.bool_]:
        """``(n,)`` whether each sample is in no cluster, and no person has set it aside."""
        outside = self.own < 0
        return outside if self.by_person is None else outside & ~self.by_person

    def doubts(self, *, keep_clusters: bool = False) -> Doubts:
        """Make the doubts about the own consensus; own clusterings and, if any, labels compare the groups."""
        votes = own_votes = memberships(list(self.partitions))
        if self.labels is not None:
            votes = blend(own_votes, Memberships(self.labels), LABELS_WEIGHT)
        parts = cut_into_parts(own_votes, self.own, numpy_generator(0, "review-parts"))
        proposed = [
            (np.flatnonzero(self.waiting & (parts == part)), OUTSIDE)
            for part in np.unique(parts[self.waiting])
        ]
        if self.proposed is not None:
            moves = np.flatnonzero((self.proposed != self.own) & (self.own >= 0) & (self.proposed >= 0))
            pairs = np.stack([self.own[moves], self.proposed[moves]], 1)
            for pair in np.unique(pairs, axis=0):
                proposed.append((moves[(pairs == pair).all(1)], int(pair[1])))
        return Doubts(votes, self.own, parts, self.n_clusters, keep_clusters=keep_clusters, proposed=proposed)

    @property
    def digest(self) -> str:
        """Digest of the samples and of the clusters from which a review starts."""
        return digest_of(json.dumps(self.ids).encode(), self.own.astype(np.int64).tobytes())

    def shares(self, clusters: Partition, n_clusters: int) -> FloatArray:
        """Compute the shares ``(n, K)`` that a model of reviewed clusters ``(n,)`` is fitted to.

        They are made as in the training. Of what single clusterings say, the share of a sample's cluster at
        the start goes to its new one, and shares of others go where these clusters went. A sample in no
        cluster has shares of 0.
        """
        voters = [one for one in self.partitions if one.max() < self.n_clusters]
        single = mean_shares(voters, np.full(len(voters), 1 / len(voters)), self.own, self.n_clusters)
        went, inside = np.zeros((self.n_clusters, n_clusters)), np.flatnonzero(clusters >= 0)
        stayed = inside[self.own[inside] >= 0]
        np.add.at(went, (self.own[stayed], clusters[stayed]), 1)
        went /= np.maximum(went.sum(1, keepdims=True), 1)
        others, mine = single.astype(np.float64), np.ones(len(single))
        mine[stayed], others[stayed, self.own[stayed]] = single[stayed, self.own[stayed]], 0
        carried = others[inside] @ went
        carried[np.arange(len(inside)), clusters[inside]] += mine[inside]
        carried /= carried.sum(1, keepdims=True)
        shares = np.zeros((len(single), n_clusters), np.float32)
        shares[inside] = soften(clusters[inside], carried.astype(np.float32))
        return shares

    def correct(
        self,
        keys: Sequence[bytes],
        clusters: Partition,
        confidence: FloatArray,
        probabilities: FloatArray | None = None,
    ) -> list[str] | None:
        """Let what a person has reviewed hold for samples, by their contents, whatever a model says of them.

        Where the model says the same, its confidence stays. Otherwise the probabilities are the shares that
        the model was fitted to; that of a cluster which a person has given is 1. The arrays are changed in
        place: ``(m,)`` clusters, ``(m,)`` confidence in them, ``(m, K)`` probabilities.

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
        shares[self.by_person] = np.eye(self.n_clusters)[self.own[self.by_person]]
        clusters[here], confidence[here] = self.own[rows], shares[rows].max(1)
        if probabilities is not None:
            probabilities[here] = shares[rows]
        return [SOURCES[kind] for kind in source.tolist()]


def number_alike(clusters: Partition, others: Partition) -> Partition:
    """Give clusters ``(n,)`` the numbers of those of another partition that they share most samples with."""
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
        _require_fitting(len(ids), features, n_clusters, **{name: found.get(name) for name in _BY_SAMPLE})
        labels = found["labels"].astype(np.float32) if "labels" in found else None
        keys = Column[bytes](found["keys"].view(KEY_TYPE).ravel())
        partitions, by_person = found["partitions"].astype(np.int64), found.get("by_person")
        remembered = Remembered(
            ids, partitions, found["own"], n_clusters, keys, labels, by_person, found.get("proposed")
        )
        return remembered, np.array(features, dtype=np.float32)
    except (OSError, DamagedFileError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}): train again") from None


def _require_fitting(
    n: int,
    features: Any,
    n_clusters: int,
    own: Any,
    partitions: Any,
    labels: Any,
    keys: Any,
    by_person: Any,
    proposed: Any,
) -> None:
    """Make sure that arrays are about ``n`` samples, and name no more clusters than these can have."""
    wide, flat = [features, partitions.T, labels, keys], [own, by_person, proposed]
    fits = all(each is None or (each.ndim == 2 and len(each) == n) for each in wide)
    fits &= all(each is None or each.shape == (n,) for each in flat)
    fits &= own.dtype.kind == "i" and partitions.dtype.kind in "iu" and n_clusters <= 2 * n
    fits &= partitions.size <= max(2**24, 128 * n) and (labels is None or labels.size <= MOST_SHARES)
    fits &= (keys.dtype, keys.shape[1]) == (np.uint8, KEY_BYTES)
    fits &= by_person is None or by_person.dtype == bool
    fits &= proposed is None or (proposed.dtype.kind == "i" and proposed.min() >= OUTSIDE)
    if (
        not fits
        or min(own.min() - OUTSIDE, partitions.min()) < 0
        or own.max() >= n_clusters
        or partitions.max() >= n
    ):
        raise ValueError("its arrays do not fit together")
