"""Builds the network of a run, decides which part is trained, and folds the trained layers at the end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from ucds.choices import Tune
from ucds.config import ModelSettings, Settings
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.gradients.session import Session
from ucds.networks.encoder import NetworkEncoder, identity_network
from ucds.networks.model import ClusteringModel, fold
from ucds.networks.stored import count_parameters
from ucds.training.features import frozen_features
from ucds.training.prepare import Training, refuse_copies, tuned_part
from ucds.training.seeds import derive


@dataclass(frozen=True)
class Learning:
    """A model that stages train in place, with the encoder below it and the samples that it takes."""

    encoder: Encoder  # frozen, or the network that is a part of the model
    trained: ClusteringModel  # whole model, or its layers above the encoder if that stays frozen
    data: Dataset  # samples and views that `trained` takes
    tune: Tune  # part of the model that is trained

    def count_frozen(self) -> int:
        """Count the parameters of the encoder if it stays frozen; 0 if their number is unknown."""
        return 0 if self.tune == "full" else count_parameters(self.encoder)

    def count_parameters(self) -> int:
        """Count the parameters of the whole network, frozen ones included."""
        return self.trained.count_parameters() + self.count_frozen()


def prepare(
    session: Session[ModelSettings], encoder: Encoder, data: Dataset, n_clusters: int, *, side: str
) -> Learning:
    """Build a model with new bottleneck and prototypes for a run on ``data``.

    With ``tune = "head"`` the encoder stays frozen: its features are computed once, and the stages are
    trained on them. Two sides with the same seed start from different random weights.
    """
    settings, device = session.settings, session.runtime.device
    refuse_copies(data.samples, n_clusters)
    tune = tuned_part(settings, encoder)
    body = identity_network(encoder.spec.width)
    if tune == "head":
        data = features_of(session, encoder, data, settings.prediction_batch_size)
    elif isinstance(encoder, NetworkEncoder):
        body = encoder
    else:
        raise InputError("tune = 'full' trains a network: name a network of timm or torchvision")
    width, generator = settings.bottleneck_width, torch_generator(derive(session.seed, side))
    trained = ClusteringModel(body, n_clusters, bottleneck_width=width, generator=generator)
    return Learning(encoder, trained.to(device), data, tune)


def torch_generator(sequence: np.random.SeedSequence) -> torch.Generator:
    """Make PyTorch's generator, on the CPU, from a seed sequence; see :func:`ucds.training.seeds.derive`."""
    return torch.Generator().manual_seed(int(sequence.generate_state(1)[0]))


def features_of(session: Session[Settings], encoder: Encoder, data: Dataset, batch_size: int = 64) -> Dataset:
    """Compute the features of a frozen encoder; with a shared cache, in the first process only."""
    compute = session.compute
    work = partial(frozen_features, encoder, data, compute, session.watch, batch_size=batch_size)
    if session.runtime.processes > 1 and compute.cache is not None and encoder.digest:
        session.once(lambda: work() and None)
    return work()


def conclude(session: Session[Settings], learning: Learning) -> Training:
    """Gather the result of a run whose stages are finished: an encoder, and a head of arrays."""
    learning.trained.eval()
    head, stages = fold(learning.trained), tuple(session.results)
    return Training(learning.encoder, head, learning.data, learning.tune, stages)
