"""TURTLE: finds the labelling that a linear classifier learns best in a few steps.

Source: Gadetsky, Jiang and Brbic, Let go of your labels with unsupervised transfer, ICML 2024.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from ucds.baselines.clustering import Clustering
from ucds.baselines.frozen_heads import HeadTraining, read_vectors
from ucds.baselines.settings import TURTLESettings
from ucds.data.samples import Samples
from ucds.training.seeds import torch_generator
from ucds.training.session import Session

_NAME = "turtle"


def cluster_by_turtle(session: Session[TURTLESettings], samples: Samples, n_clusters: int) -> Clustering:
    """Cluster vectors by the labelling that a linear classifier learns best.

    Labels are a softmax of a linear function of the vectors. In each step a classifier starts from random
    weights and is trained on the labels for a few steps; then the labels move so that its error falls, while
    their entropy keeps clusters from vanishing.

    Args:
        session: the run.
        samples: ``n`` vectors.
        n_clusters: number of clusters, the paper's ``C``.

    Raises:
        InputError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    settings, vectors = session.settings, read_vectors(samples)
    width, device = vectors.shape[1], session.runtime.device
    start = torch_generator(session.runtime.seed, _NAME, "labelling")
    labelling = weight_norm(random_layer(width, n_clusters, start))
    make_optimiser = partial(_adam, learning_rate=settings.learning_rate)
    training = HeadTraining(session, _NAME, labelling, make_optimiser, vectors)
    for batch in training.batches():
        labels = training.loop.forward(batch.inputs).softmax(-1)
        generator = torch.Generator().manual_seed(int(batch.rng.integers(2**63)))
        classifier = random_layer(width, n_clusters, generator).to(device)
        fit_classifier(classifier, batch.inputs, labels.detach(), settings)
        with torch.no_grad():
            logits = classifier(batch.inputs)
        training.loop.update(
            error=functional.cross_entropy(logits, labels),
            entropy=-settings.entropy_weight * torch.special.entr(labels.mean(0)).sum(),
        )
    return training.conclude(lambda part: training.head(part).softmax(-1))


def fit_classifier(classifier: nn.Linear, inputs: Tensor, labels: Tensor, settings: TURTLESettings) -> None:
    """Train a linear classifier in place for the settings' number of steps.

    Args:
        classifier: layer from ``d`` features to ``K`` logits.
        inputs: ``(n, d)`` vectors.
        labels: ``(n, K)`` probabilities.
        settings: number of steps, and learning rate.
    """
    optimiser = _adam(classifier, settings.inner_learning_rate)
    for _ in range(settings.inner_steps):
        optimiser.zero_grad(set_to_none=True)
        functional.cross_entropy(classifier(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def random_layer(width: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer with PyTorch's usual start, drawn from a generator of its own."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, width, outputs)  # type: ignore[no-untyped-call]
    bound = 1 / np.sqrt(width)
    for weight in layer.parameters():
        nn.init.uniform_(weight, -bound, bound, generator=generator)
    return layer


def _adam(module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=learning_rate)
