"""TEMI: heads learn from their own averaged weights that near samples belong together.

Source: Adaloglou, Michels, Kalisch and Kollmann, Exploring the limits of deep image clustering using
pretrained models, BMVC 2023.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from ucds.baselines.clustering import Clustering
from ucds.baselines.frozen_heads import HeadTraining, Neighbours, read_vectors
from ucds.baselines.settings import TEMISettings
from ucds.data.samples import Samples
from ucds.math.arrays import FloatArray
from ucds.training.seeds import torch_generator
from ucds.training.session import Session

_NAME = "temi"


class ParallelHeads(nn.Module):
    """Several heads of two layers, and a last layer that compares directions.

    Args:
        width: length of the input vectors.
        n_clusters: number of outputs of each head.
        settings: number and widths of the heads, and temperature of the outputs.
        generator: source of random weights.
    """

    def __init__(
        self, width: int, n_clusters: int, settings: TEMISettings, generator: torch.Generator
    ) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int) -> nn.Parameter:
            weights = torch.empty(settings.heads, inputs, outputs)
            return nn.Parameter(nn.init.trunc_normal_(weights, std=0.02, generator=generator))

        self.hidden = layer(width, settings.hidden_width)
        self.projection = layer(settings.hidden_width, settings.output_width)
        self.hidden_bias = nn.Parameter(torch.zeros(settings.heads, 1, settings.hidden_width))
        self.projection_bias = nn.Parameter(torch.zeros(settings.heads, 1, settings.output_width))
        self.last = layer(settings.output_width, n_clusters)
        self.scale = nn.Parameter(torch.ones(settings.heads, 1, n_clusters))
        self._temperature = settings.temperature

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute cluster probabilities ``(H, b, K)`` of vectors ``(b, d)``."""
        hidden = functional.gelu(inputs @ self.hidden + self.hidden_bias)
        features = functional.normalize(hidden @ self.projection + self.projection_bias, dim=-1)
        cosines = features @ functional.normalize(self.last, dim=1)
        return (self.scale * cosines / self._temperature).softmax(-1)


def cluster_by_temi(session: Session[TEMISettings], samples: Samples, n_clusters: int) -> Clustering:
    """Cluster vectors by heads that agree on neighbours; the head with the lowest loss is taken.

    Args:
        session: the run.
        samples: ``n`` vectors, which are standardised first.
        n_clusters: number of clusters, the paper's ``C``.

    Returns:
        The clustering of the teacher's best head.

    Raises:
        InputError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    settings, vectors = session.settings, standardised(read_vectors(samples))
    generator = torch_generator(session.runtime.seed, _NAME, "heads")
    heads = ParallelHeads(vectors.shape[1], n_clusters, settings, generator)
    training = HeadTraining(session, _NAME, heads, partial(_adamw, settings=settings), vectors)
    neighbours = Neighbours(vectors, n_clusters, settings.neighbours)
    teacher = copy.deepcopy(training.head).requires_grad_(False)
    sizes = torch.full((settings.heads, 1, n_clusters), 1 / n_clusters, device=session.runtime.device)
    losses = torch.zeros(settings.heads, device=session.runtime.device)
    for step, batch in enumerate(training.batches()):
        pairs = torch.stack([batch.inputs, neighbours.draw(batch)])
        with torch.no_grad():
            targets = teacher(pairs.flatten(0, 1)).unflatten(1, (2, -1))
            sizes.lerp_(targets.mean((1, 2)).unsqueeze(1), 1 - settings.marginal_momentum)
        predictions = training.loop.forward(pairs.flatten(0, 1)).unflatten(1, (2, -1))
        of_heads = weighted_information_loss(predictions, targets, sizes, settings.exponent)
        training.loop.set_rate(_rate(settings, step) * training.batch_size / 256)
        training.loop.update(information=of_heads.mean())
        _follow(teacher, training.head, settings.teacher_momentum)
        losses.lerp_(of_heads.detach(), 1 - settings.marginal_momentum)
    training.head.load_state_dict(teacher.state_dict())
    best = int(losses.argmin())
    return training.conclude(lambda part: training.head(part)[best])


def weighted_information_loss(predictions: Tensor, targets: Tensor, sizes: Tensor, exponent: float) -> Tensor:
    """Compute the negative pointwise information of pairs, weighted by the teacher's belief in each pair.

    The information of a pair is ``log sum_c (s_c t_c)^beta / p_c``, with the student's probabilities ``s`` of
    one sample and the teacher's ``t`` of the other; both orders count alike. The weight of a pair is the
    teacher's probability that both belong to one cluster, averaged over the heads.

    Args:
        predictions: ``(H, 2, b, K)`` probabilities of the student for both samples of each pair.
        targets: ``(H, 2, b, K)`` probabilities of the teacher; no gradient flows into them.
        sizes: ``(H, 1, K)`` sizes of the clusters, the paper's ``p``.
        exponent: the paper's ``beta``.

    Returns:
        ``(H,)`` loss of each head.
    """
    targets = targets.detach()
    agreement = (predictions * targets.flip(1)).clamp_min(1e-30).pow(exponent)
    information = (agreement / sizes.unsqueeze(1)).sum(-1).log().mean(1)
    weights = targets.prod(1).sum(-1).mean(0)
    return -(weights * information).mean(-1)


def standardised(vectors: FloatArray) -> FloatArray:
    """Bring each feature to mean zero and deviation one; a constant feature becomes zero."""
    deviation = vectors.std(0)
    found: FloatArray = (vectors - vectors.mean(0)) / deviation.clip(1e-6 * max(1.0, float(deviation.max())))
    return found


@torch.no_grad()
def _follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
        own.lerp_(other, 1 - momentum)


def _adamw(module: nn.Module, settings: TEMISettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), weight_decay=settings.weight_decay)


def _rate(settings: TEMISettings, step: int) -> float:
    """Return the learning rate of a step for batches of 256 samples: it rises linearly, and then stays."""
    risen = min(1.0, (step + 1) / max(1.0, settings.warm_up * settings.steps))
    return settings.learning_rate * risen
