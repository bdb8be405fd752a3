"""Parts that TURTLE, TEMI and SCP share: they train a small head on frozen features, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from ucds.baselines.clustering import Clustering
from ucds.baselines.loop import Loop
from ucds.baselines.settings import HeadSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.math.arrays import FloatArray
from ucds.math.spaces import neighbours_within, unit_rows
from ucds.training.session import Session
from ucds.training.steps import Batch

_PIECE = 4096
"""Number of samples that are assigned at a time."""


def read_vectors(samples: Samples) -> FloatArray:
    """Read all vectors ``(n, d)`` of samples into memory."""
    vectors: FloatArray = samples.read(np.arange(len(samples))).numpy()
    return vectors


def as_data(vectors: FloatArray) -> Dataset:
    """Return vectors ``(n, d)`` as samples of one domain, which a head takes as they are."""
    return Dataset(VectorSamples(vectors), VectorView())


class Neighbours:
    """Draws a near sample for every sample of a batch: the two are taken for a pair of one cluster.

    A sample has as many neighbours as half an average cluster has members, up to a given number: in a small
    target, the fifty neighbours of the papers would belong to several classes.

    Args:
        vectors: ``(n, d)`` vectors, at least two; cosines say which are near.
        n_clusters: number of clusters, K.
        most: largest number of neighbours.
    """

    def __init__(self, vectors: FloatArray, n_clusters: int, most: int) -> None:
        self._vectors = vectors
        count = min(neighbours_within(len(vectors), n_clusters, most), len(vectors) - 1)
        directions = unit_rows(vectors)
        search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(directions)
        self.table: NDArray[np.int64] = search.kneighbors(return_distance=False)

    def draw(self, batch: Batch) -> Tensor:
        """Return the vector ``(b, d)`` of a random neighbour of each sample of a batch."""
        index = batch.index.cpu().numpy()
        chosen = batch.rng.integers(self.table.shape[1], size=len(index))
        return torch.from_numpy(self._vectors[self.table[index, chosen]]).to(batch.inputs.device)


class HeadTraining:
    """The steps of a head on vectors, and the clustering that it ends with.

    Args:
        session: the run.
        name: name of the method, in logs.
        head: network from vectors ``(b, d)``; it is moved to the device of the run.
        make_optimiser: function that makes the optimiser of the head.
        vectors: ``(n, d)`` vectors to train on.

    Attributes:
        head: network on the device of the run.
        loop: steps of the training.
        batch_size: number of samples of a step.
    """

    def __init__(
        self,
        session: Session[HeadSettings],
        name: str,
        head: nn.Module,
        make_optimiser: Callable[[nn.Module], torch.optim.Optimizer],
        vectors: FloatArray,
    ) -> None:
        settings, runtime = session.settings, session.runtime
        self.head = head.to(runtime.device)
        self._vectors, self._device = vectors, runtime.device
        data = as_data(vectors)
        self._sampler = DomainBalancedSampler(data.samples.domain, settings.batch_size, runtime.seed)
        self.batch_size, self._steps = self._sampler.batch_size, settings.steps
        optimiser = make_optimiser(self.head)
        self.loop = Loop(session, name, self.head, optimiser, data, settings.steps)

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of all steps; the caller ends every step with ``loop.update``."""
        return self.loop.steps(self._sampler, self._steps)

    @torch.no_grad()
    def conclude(self, predict: Callable[[Tensor], Tensor]) -> Clustering:
        """Assign all samples to clusters.

        Args:
            predict: function from vectors ``(b, d)`` to cluster probabilities ``(b, K)``.
        """
        self.head.eval()
        parts = torch.split(torch.from_numpy(self._vectors), _PIECE)
        probabilities = torch.cat([predict(part.to(self._device)).cpu() for part in parts])
        labels = self.loop.finish(probabilities)
        return Clustering(labels, self.loop.seconds, self.loop.images_seen, self.head)
