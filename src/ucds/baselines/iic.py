"""IIC: clusters samples so that two views of a sample have the largest mutual information.

The over-clustering head has more outputs than there are clusters, and only helps the encoder to learn. Each
head consists of linear sub-heads with the same loss; in the end, the one with the lowest loss is taken.
Source: Ji, Henriques and Vedaldi, Invariant information clustering, ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.views import PairedImageView, PairedVectorView
from ucds.config import ModelSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.gradients.pcd_loss import at_least_single
from ucds.gradients.prediction import predict
from ucds.gradients.prepare import prepare, torch_generator
from ucds.gradients.session import Session
from ucds.gradients.views import in_training
from ucds.networks.encoder import evaluation_mode
from ucds.networks.model import ClusteringModel
from ucds.training.seeds import derive


class PairSettings(ModelSettings):
    """Settings that IIC and ACIDS share."""

    sub_heads: int = Field(5, ge=1, description="sub-heads of each head")
    over_clustering: float = Field(7.0, ge=1, description="outputs of the other head, in multiples of K")
    learning_rate: float = Field(1e-4, gt=0, description="learning rate of Adam, for all layers")
    rates: tuple[float, ...] = Field(
        (), strict=False, description="learning rates to choose from by the loss; none keeps learning_rate"
    )
    crop: float = Field(2 / 3, gt=0, le=1, description="side of crops, as a share of the image's")
    feature_dropout: float = Field(0.2, ge=0, lt=1, description="dropout that makes pairs of frozen features")
    bottleneck: bool = Field(False, description="PCD's bottleneck below the heads; always with tune = head")


class IICSettings(PairSettings):
    """Settings of IIC; the defaults are the authors' for STL10."""

    epochs: int = Field(2000, ge=1, description="passes over the samples with each of the two heads")
    batch_size: int = Field(140, ge=2, description="samples per step")
    repeats: int = Field(5, ge=1, description="pairs of each sample in a batch, r")


S = TypeVar("S", bound=PairSettings)


def cluster_by_iic(
    session: Session[IICSettings], encoder: Encoder, data: Dataset, n_clusters: int
) -> Clustering:
    """Cluster samples by invariant information.

    With ``tune = "head"`` the encoder stays frozen; the original starts from random weights. The domains of
    the samples are ignored, and images are cropped as the settings say.
    """
    settings = session.settings
    networks, usual = prepare_networks(session, encoder, data, n_clusters, name="iic")
    pairs = in_pairs(encoder, usual, settings, settings.repeats)
    nowhere = np.zeros(len(pairs.samples), dtype=np.int64)
    sampler = DomainBalancedSampler(nowhere, settings.batch_size, session.seed)
    loop = make_loop(session, "iic", networks.heads, pairs, settings.epochs * sampler.steps_per_epoch)
    for _ in range(settings.epochs):
        for over in (True, False):
            for batch in loop.epoch(sampler):
                first, second = pair_probabilities(loop.forward, batch.inputs, over)
                loop.update(information=-mutual_information(view_joint(first, second)).mean())
    return conclude(session, loop, networks, pairs, name="iic")


def view_joint(first: Tensor, second: Tensor) -> Tensor:
    """Estimate the joint distribution of the clusters of two views of a sample (Eq. 2).

    The order of the two views (``(..., n, K)`` probabilities each) has no meaning, so the ``(..., K, K)``
    estimate is symmetrised.
    """
    first, second = at_least_single(first), at_least_single(second)
    joint = first.mT @ second / first.shape[-2]
    return (joint + joint.mT) / 2


def mutual_information(joint: Tensor) -> Tensor:
    """Compute the mutual information of two variables, in nats (Eq. 3).

    ``sum_kl P_kl (log P_kl - log P_k - log P_l)`` is zero for independent variables, and ``log K`` if each of
    K equally frequent values of one belongs to one value of the other. Zeros in the ``(..., R, C)`` joint
    distribution are allowed.
    """
    # p log p has the limit 0 at p = 0, where log p has none.
    parts = (joint, joint.sum(-1, keepdim=True), joint.sum(-2, keepdim=True))
    both, rows, columns = (part.clamp_min(1e-30).log() for part in parts)
    return (joint * (both - rows - columns)).sum((-2, -1))


class TwoHeads(nn.Module):
    """An encoder with two heads of ``H`` sub-heads each, ``over`` and ``clusters``: ``(H, d, outputs)``."""

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        n_clusters: int,
        settings: PairSettings,
        generator: torch.Generator,
    ) -> None:
        super().__init__()

        def head(outputs: int) -> nn.Parameter:
            weights = torch.empty(settings.sub_heads, width, outputs)
            return nn.Parameter(weights.normal_(0, 0.01, generator=generator))

        self.encoder = encoder
        self.over = head(round(settings.over_clustering * n_clusters))
        self.clusters = head(n_clusters)

    def forward(self, inputs: Tensor, over: bool) -> Tensor:
        """Compute logits ``(H, n, K)``, or ``(H, n, K')`` with the over-clustering head."""
        logits: Tensor = self.encoder(inputs) @ (self.over if over else self.clusters)
        return logits


class Networks(NamedTuple):
    """The networks of a baseline, which share their encoder."""

    trained: ClusteringModel  # as it is used after training, or its head if the encoder stays frozen
    heads: TwoHeads
    frozen: int = 0  # number of parameters of a frozen encoder


def prepare_networks(
    session: Session[PairSettings], encoder: Encoder, data: Dataset, n_clusters: int, *, name: str
) -> tuple[Networks, Dataset]:
    """Build the networks of a baseline, and the data that they take, in its usual view."""
    learning = prepare(session, encoder, data, n_clusters, side=name)
    trained, device = learning.trained, session.runtime.device
    settings = session.settings
    if settings.tune == "full" and not settings.bottleneck:
        trained.encoder.bottleneck = nn.Sequential()
        trained.prototypes = nn.Parameter(torch.zeros(encoder.spec.width, n_clusters, device=device))
    generator = torch_generator(derive(session.seed, name, "sub-heads"))
    heads = TwoHeads(trained.encoder, trained.bottleneck_width, n_clusters, settings, generator)
    return Networks(trained, heads.to(device), learning.count_frozen()), learning.data


def in_pairs(encoder: Encoder, data: Dataset, settings: PairSettings, repeats: int = 1) -> Dataset:
    """Return data whose views are pairs, with images of the size that the encoder takes."""
    spec, view = encoder.spec, data.view
    if len(view.input_shape) == 1:
        return Dataset(data.samples, PairedVectorView(spec.width, settings.feature_dropout, repeats))
    return Dataset(data.samples, PairedImageView(spec, view, settings.crop, repeats))


def pair_probabilities(
    forward: Callable[[Tensor, bool], Tensor], views: Tensor, over: bool
) -> tuple[Tensor, Tensor]:
    """Compute the cluster probabilities of both views of all pairs of a batch.

    Plain and changed views pass through the network separately, so that they have separate statistics in
    batch normalisation. The ``(n, 1 + R, ...)`` views are a plain one of each sample and ``R`` changed ones.
    In both results ``(H, R n, K)``, row ``r n + i`` belongs to sample ``i`` and its ``r``-th changed view.
    """
    repeats = views.shape[1] - 1
    plain = forward(views[:, 0], over)
    changed = forward(views[:, 1:].transpose(0, 1).flatten(0, 1), over)
    first, second = (at_least_single(logits).softmax(-1) for logits in (plain, changed))
    return first.repeat(1, repeats, 1), second


def make_loop(session: Session[PairSettings], name: str, heads: TwoHeads, pairs: Dataset, steps: int) -> Loop:
    """Make a loop of ``steps`` steps with each head, with Adam as in the original, without any decay."""
    optimiser = torch.optim.Adam(heads.parameters(), lr=session.settings.learning_rate)
    return Loop(session, name, heads, optimiser, pairs, 2 * steps)


def conclude(
    session: Session[PairSettings], loop: Loop, networks: Networks, data: Dataset, *, name: str
) -> Clustering:
    """Cluster all samples by the sub-head with the lowest loss over them; labels are not used."""
    size = session.settings.prediction_batch_size
    information = _information(session, networks.heads, data, name, size)
    best = information.argmax()
    with torch.no_grad():
        networks.trained.prototypes.copy_(networks.heads.clusters[best])
    labels = loop.finish(predict(networks.trained, data, session.runtime, size))
    trained, of_best = networks.trained.eval(), float(information[best])
    parameters = trained.count_parameters() + networks.frozen
    return Clustering(labels, loop.seconds, loop.images_seen, trained, of_best, parameters)


def with_best_rate(settings: S, train: Callable[[S], Clustering]) -> Clustering:
    """Train anew with each learning rate of the settings, and keep the clustering of the lowest loss.

    The kept clustering has the largest mutual information of its two views; its cost includes all trainings.
    """
    found = [
        train(settings.model_copy(update={"learning_rate": rate, "rates": ()}))
        for rate in settings.rates or (settings.learning_rate,)
    ]
    best = max(found, key=lambda one: one.information or 0.0)
    return replace(
        best, seconds=sum(one.seconds for one in found), images_seen=sum(one.images_seen for one in found)
    )


def _information(
    session: Session[PairSettings], heads: TwoHeads, data: Dataset, name: str, size: int
) -> Tensor:
    """Compute the mutual information ``(H,)`` of the views of all samples for each sub-head."""
    n, runtime, view = len(data.samples), session.runtime, in_training(data.view)
    generator = torch_generator(derive(session.seed, name, "choice"))
    joint = torch.zeros((), device=runtime.device)
    with evaluation_mode(heads):
        for index in np.array_split(np.arange(n), -(-n // size)):
            raw = torch.from_numpy(data.samples.read(index)).to(runtime.device)
            views = view.train(raw, view.draw(len(index), generator))
            with runtime.autocast():  # for the network; views are made in full precision
                first, second = pair_probabilities(heads, views, False)
            joint = joint + view_joint(first, second) * (len(index) / n)
    return mutual_information(joint)
