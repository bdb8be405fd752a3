"""SCP: a small head gives near samples the same cluster, surely, and keeps all clusters in use.

Source: Li, Saez de Ocariz Borde, Kratsios and McNicholas, Keep it light! Simplifying image clustering via
text-free adapters, 2025. The forms of its three terms are those of TAC, which it simplifies: Li et al., Image
clustering with external guidance, ICML 2024.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from ucds.baselines.clustering import Clustering
from ucds.baselines.frozen_heads import HeadTraining, Neighbours, read_vectors
from ucds.baselines.settings import SCPSettings
from ucds.data.samples import Samples
from ucds.math.spaces import unit_rows
from ucds.training.seeds import torch_generator
from ucds.training.session import Session

_NAME = "scp"


def cluster_by_scp(session: Session[SCPSettings], samples: Samples, n_clusters: int) -> Clustering:
    """Cluster vectors by a head that agrees on neighbours.

    Args:
        session: the run.
        samples: ``n`` vectors, which are brought to unit length first.
        n_clusters: number of clusters, K.

    Raises:
        InputError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    settings, vectors = session.settings, unit_rows(read_vectors(samples))
    generator = torch_generator(session.runtime.seed, _NAME, "head")
    head = make_head(vectors.shape[1], settings.hidden_width, n_clusters, generator)

    def make_optimiser(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(module.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99))

    training = HeadTraining(session, _NAME, head, make_optimiser, vectors)
    neighbours = Neighbours(vectors, n_clusters, settings.neighbours)
    for batch in training.batches():
        # The two samples of a pair pass separately, so that each have their own statistics.
        first = training.loop.forward(batch.inputs).softmax(-1)
        second = training.loop.forward(neighbours.draw(batch)).softmax(-1)
        training.loop.update(
            consistency=consistency_loss(first, second, settings.contrast_temperature),
            confidence=confidence_loss(first, second),
            entropy=-settings.entropy_weight * (_marginal_entropy(first) + _marginal_entropy(second)),
        )
    return training.conclude(lambda part: training.head(part).softmax(-1))


def consistency_loss(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Compute how badly a cluster's column of one view picks out its column of the other view.

    A column holds the probabilities of one cluster for all samples. In each direction a softmax over the
    cosines of a column with all other columns of both views should choose its counterpart.

    Args:
        first: ``(b, K)`` cluster probabilities of the first sample of each pair.
        second: ``(b, K)`` cluster probabilities of the second sample of each pair.
        temperature: temperature of that softmax.
    """
    count = first.shape[1]
    columns = functional.normalize(torch.cat([first.T, second.T]), dim=1)
    cosines = columns @ columns.T / temperature
    cosines = cosines.masked_fill(torch.eye(2 * count, dtype=torch.bool, device=first.device), -torch.inf)
    counterpart = torch.arange(2 * count, device=first.device).roll(count)
    return functional.cross_entropy(cosines, counterpart)


def confidence_loss(first: Tensor, second: Tensor) -> Tensor:
    """Compute the mean of ``-log sum_c p_c q_c`` over pairs: zero if both are sure of the same cluster.

    Args:
        first: ``(b, K)`` cluster probabilities of the first sample of each pair.
        second: ``(b, K)`` cluster probabilities of the second sample of each pair.
    """
    return -(first * second).sum(-1).clamp_min(1e-30).log().mean()


def make_head(width: int, hidden: int, n_clusters: int, generator: torch.Generator) -> nn.Module:
    """Make the head: two linear layers with batch normalisation and a ReLU between them."""

    def linear(inputs: int, outputs: int) -> nn.Linear:
        layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
        nn.init.trunc_normal_(layer.weight, std=0.02, generator=generator)
        nn.init.zeros_(layer.bias)
        return layer

    below, above = linear(width, hidden), linear(hidden, n_clusters)
    return nn.Sequential(OrderedDict(below=below, norm=nn.BatchNorm1d(hidden), relu=nn.ReLU(), above=above))


def _marginal_entropy(probabilities: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probabilities.mean(0)).sum()
    return entropy
