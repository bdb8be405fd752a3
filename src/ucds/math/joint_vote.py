"""Lets the clusterings of several encoders vote together, with weights that are found without labels.

A weak encoder costs accuracy if it counts as much as a strong one. How strong an encoder is shows in its own
clusterings: the clearer it sees groups, the more its clusterings agree with their consensus. The vote of a
single encoder is that of :mod:`ucds.math.vote`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ucds.math.arrays import FloatArray
from ucds.math.partitions import (
    Memberships,
    Partition,
    consensus,
    mean_coassociation,
    memberships,
    refine,
)
from ucds.math.spaces import Spaces
from ucds.math.vote import Vote, choose_consensus

POWER = 60.0
"""Power of an encoder's strength that is its weight. ``docs/consensus-results.md`` says on which tasks it was
chosen, and on which it was confirmed."""


@dataclass(frozen=True)
class JointVote:
    """Partitions of one domain in the spaces of one or several encoders, and what they agree on.

    Attributes:
        encoders: vote of each encoder by itself.
        weights: ``(E,)`` weight of each encoder, of sum 1.
        memberships: ``(n, m)`` partitions of all encoders with their weights.
        partition: ``(n,)`` consensus of all, with K clusters.
    """

    encoders: list[Vote]
    weights: FloatArray
    memberships: Memberships
    partition: Partition

    @property
    def strongest(self) -> int:
        """Position of the encoder with the largest weight."""
        return int(self.weights.argmax())

    @property
    def own(self) -> Vote:
        """The joint consensus as a vote of the strongest encoder, by whose spaces labels are judged."""
        return Vote(self.encoders[self.strongest].spaces, self.memberships, self.partition)

    @property
    def votes(self) -> list[Partition]:
        """Partitions of all encoders, one after another."""
        return _votes(self.encoders)

    @property
    def vote_weights(self) -> FloatArray | None:
        """Weight of each of :attr:`votes`; ``None`` for a single encoder, whose votes count alike."""
        return _vote_weights(self.encoders, self.weights) if len(self.encoders) > 1 else None


def join_votes(
    encoders: Sequence[Vote], spaces: Sequence[Spaces], n_clusters: int, rng: np.random.Generator
) -> JointVote:
    """Find a partition on which the clusterings of all encoders agree, each with its encoder's weight.

    There are two candidates: the consensus of all votes, and that of the strongest encoder with samples moved
    by all votes. They are compared as in :func:`ucds.math.vote.vote`. So an encoder of hardly any weight
    hardly changes a cluster.

    Args:
        encoders: vote of each encoder about the same samples, see :func:`ucds.math.vote.vote`.
        spaces: spaces of each encoder.
        n_clusters: number of clusters of the consensus, K.
        rng: generator of the choice of representatives.
    """
    if len(encoders) == 1:
        alone = encoders[0]
        return JointVote([alone], np.ones(1, np.float32), alone.memberships, alone.partition)
    strengths = [mean_coassociation(one.memberships, one.partition, n_clusters) for one in encoders]
    weights = weigh_encoders(strengths)
    joined = memberships(_votes(encoders), _vote_weights(encoders, weights))
    strongest = encoders[int(weights.argmax())].partition
    candidates = [consensus(joined, n_clusters, rng), refine(joined, strongest, n_clusters)]
    vectors = [space for one in spaces for space in one.vectors.values()]
    of_space = np.repeat(weights, [len(one.vectors) for one in spaces])
    partition = choose_consensus(candidates, joined, vectors, n_clusters, of_space)
    return JointVote([*encoders], weights, joined, partition)


def weigh_encoders(strengths: Sequence[float]) -> FloatArray:
    """Compute the weight ``(E,)`` of each encoder, of sum 1.

    Args:
        strengths: mean co-association of the samples with their cluster in the consensus of each encoder, by
            its own clusterings; 0 to 1.
    """
    # In relation to the strongest: powers of small numbers would be lost to rounding.
    relative = np.maximum(strengths, 1e-6) / max(*strengths, 1e-6)
    return np.asarray(relative**POWER / (relative**POWER).sum(), dtype=np.float32)


def split_columns(vectors: FloatArray, parts: Sequence[int]) -> list[FloatArray]:
    """Split features ``(n, d)`` into those of each encoder.

    Args:
        vectors: features of all encoders, side by side.
        parts: number of features of each encoder; empty for a single one.
    """
    if not parts:
        return [vectors]
    return [np.ascontiguousarray(block) for block in np.split(vectors, np.cumsum(parts)[:-1], axis=1)]


def column_scales(parts: Sequence[int], weights: FloatArray) -> FloatArray:
    """Compute the factor ``(d,)`` of each feature by which encoders count as much as their weights say.

    Where features of each encoder have unit length, scaled features have the length of unscaled ones.

    Args:
        parts: number of features of each encoder.
        weights: ``(E,)`` weight of each encoder, of sum 1.
    """
    least = 1e-8  # a factor of 0 could not be taken back
    roots = np.sqrt(len(parts) * np.maximum(weights, least))
    return np.asarray(np.repeat(roots, parts), dtype=np.float32)


def _votes(encoders: Sequence[Vote]) -> list[Partition]:
    return [partition for one in encoders for space in one.spaces for partition in space]


def _vote_weights(encoders: Sequence[Vote], weights: FloatArray) -> FloatArray:
    counts = [sum(map(len, one.spaces)) for one in encoders]
    return np.repeat(weights / np.array(counts, np.float32), counts)
