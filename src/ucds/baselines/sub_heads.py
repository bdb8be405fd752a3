"""Parts that IIC and ACIDS share: pairs of views, two heads of several sub-heads, and the final choice.

The over-clustering head has more outputs than there are clusters, and only helps the encoder to learn. Each
head consists of linear sub-heads with the same loss, of which the one with the lowest is taken in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ucds.backbones import Backbone
from ucds.baselines.joint_information import mutual_information, view_joint
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import PairSettings
from ucds.baselines.views import paired_view
from ucds.data.dataset import Dataset
from ucds.math.pcd import at_least_single
from ucds.models import ClusteringModel, Encoder
from ucds.training.prediction import evaluation_mode, predict
from ucds.training.prepare import prepare
from ucds.training.seeds import torch_generator
from ucds.training.session import Session

S = TypeVar("S", bound=PairSettings)


class TwoHeads(nn.Module):
    """An encoder with two heads of ``H`` sub-heads each.

    Attributes:
        encoder: encoder from inputs to ``(n, d)`` features.
        over: over-clustering head, ``(H, d, K')``.
        clusters: head whose outputs are the clusters, ``(H, d, K)``.
    """

    def __init__(
        self,
        encoder: Encoder,
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

    whole: ClusteringModel  # as it is used after training
    trained: ClusteringModel  # the same, or its head if the backbone stays frozen
    heads: TwoHeads


def prepare_networks(
    session: Session[PairSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    *,
    name: str,
) -> tuple[Networks, Dataset]:
    """Build the networks of a baseline, and the data that they take, in its usual view."""
    training = prepare(session, backbone, data, n_clusters, side=name)
    trained, device = training.trained, session.runtime.device
    settings = session.settings
    if settings.tune == "full" and not settings.bottleneck:
        trained.encoder.bottleneck = nn.Sequential()
        trained.prototypes = nn.Parameter(torch.zeros(backbone.spec.width, n_clusters, device=device))
    generator = torch_generator(session.runtime.seed, name, "sub-heads")
    heads = TwoHeads(trained.encoder, trained.bottleneck_width, n_clusters, settings, generator)
    return Networks(training.model, trained, heads.to(device)), training.data


def in_pairs(backbone: Backbone, data: Dataset, settings: PairSettings, repeats: int = 1) -> Dataset:
    """Return data whose views are pairs, with images in the size that the backbone takes."""
    view = paired_view(backbone.spec, data.view, settings.crop, settings.feature_dropout, repeats)
    return Dataset(data.samples, view)


def pair_probabilities(
    forward: Callable[[Tensor, bool], Tensor], views: Tensor, over: bool
) -> tuple[Tensor, Tensor]:
    """Compute the cluster probabilities of both views of all pairs of a batch.

    Plain and changed views pass through the network separately, so that each have their own statistics in
    batch normalisation.

    Args:
        forward: function that returns the logits ``(H, m, K)`` of ``m`` inputs.
        views: ``(n, 1 + R, ...)`` views: the plain view of each sample and ``R`` changed ones.
        over: whether to use the over-clustering head.

    Returns:
        Two tensors ``(H, R n, K)``; row ``r n + i`` belongs to sample ``i`` and its ``r``-th changed view.
    """
    repeats = views.shape[1] - 1
    plain = forward(views[:, 0], over)
    changed = forward(views[:, 1:].transpose(0, 1).flatten(0, 1), over)
    first, second = (at_least_single(logits).softmax(-1) for logits in (plain, changed))
    return first.repeat(1, repeats, 1), second


def make_optimiser(heads: TwoHeads, settings: PairSettings) -> torch.optim.Optimizer:
    """Make the originals' optimiser: Adam, without decay of weights or rate."""
    return torch.optim.Adam(heads.parameters(), lr=settings.learning_rate)


def conclude(
    session: Session[PairSettings], loop: Loop, networks: Networks, data: Dataset, *, name: str
) -> Clustering:
    """Cluster all samples by the sub-head with the lowest loss over them; labels are not used."""
    size = session.settings.prediction_batch_size
    information = _information(session, networks.heads, data, name, size)
    best = information.argmax()
    with torch.no_grad():
        networks.trained.prototypes.copy_(networks.heads.clusters[best])
    probabilities = predict(networks.trained, data.samples, data.view, session.runtime, size)
    labels = loop.finish(probabilities)
    model = networks.whole.eval()
    return Clustering(labels, loop.seconds, loop.images_seen, model, float(information[best]))


def with_best_rate(settings: S, train: Callable[[S], Clustering]) -> Clustering:
    """Train anew with each learning rate of the settings, and keep the clustering of the lowest loss.

    Its two views have the largest mutual information, and its cost is that of all trainings.
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
    n, runtime = len(data.samples), session.runtime
    generator = torch_generator(runtime.seed, name, "choice")
    joint = torch.zeros((), device=runtime.device)
    with evaluation_mode(heads):
        for index in np.array_split(np.arange(n), -(-n // size)):
            raw = data.samples.read(index).to(runtime.device)
            views = data.view.train(raw, data.view.draw(len(index), generator))
            with runtime.autocast():  # for the network; views are made in full precision
                first, second = pair_probabilities(heads, views, False)
            joint = joint + view_joint(first, second) * (len(index) / n)
    return mutual_information(joint)
