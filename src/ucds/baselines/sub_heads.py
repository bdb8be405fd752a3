"""What IIC and ACIDS have in common: pairs of views, two heads of several sub-heads each, and a choice.

One head has more outputs than there are clusters; it only helps the encoder to learn. Each head is a
number of linear sub-heads with the same loss, of which the one with the lowest is taken in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ucds.backbones import Backbone
from ucds.baselines.clustering import Clustering
from ucds.baselines.joint_information import mutual_information, view_joint
from ucds.baselines.loop import Loop
from ucds.baselines.settings import PairSettings
from ucds.baselines.views import paired_view
from ucds.data.dataset import Dataset
from ucds.math.precision import at_least_single
from ucds.models import ClusteringModel, Encoder
from ucds.training.prediction import evaluation_mode, predict
from ucds.training.prepare import prepare
from ucds.training.seeds import torch_generator
from ucds.training.session import Session


class TwoHeads(nn.Module):
    """An encoder under two heads of several sub-heads.

    Attributes:
        encoder: maps inputs to ``(n, d)`` features.
        over: over-clustering head, ``(H, d, K')``.
        clusters: the head whose outputs are the clusters, ``(H, d, K)``.
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
        """Logits ``(H, n, K)``, or ``(H, n, K')`` of the over-clustering head."""
        logits: Tensor = self.encoder(inputs) @ (self.over if over else self.clusters)
        return logits


@dataclass(frozen=True)
class Networks:
    """A model in the making; the three share their encoder.

    Attributes:
        whole: the model as it will be used.
        trained: the same, or its head where the backbone stays frozen.
        heads: what is trained.
    """

    whole: ClusteringModel
    trained: ClusteringModel
    heads: TwoHeads


def prepare_networks(
    session: Session[PairSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    *,
    name: str,
    cache: Path | None,
) -> tuple[Networks, Dataset]:
    """Build the networks of a baseline, and the samples as they take them, in their usual view."""
    training = prepare(session, backbone, data, n_clusters, side=name, cache=cache)
    trained, device = training.trained, session.runtime.device
    settings = session.settings
    if settings.tune == "full" and not settings.bottleneck:
        trained.encoder.bottleneck = nn.Sequential()
        trained.prototypes = nn.Parameter(torch.zeros(backbone.spec.width, n_clusters, device=device))
    generator = torch_generator(session.runtime.seed, name, "sub-heads")
    heads = TwoHeads(trained.encoder, trained.bottleneck_width, n_clusters, settings, generator)
    return Networks(training.model, trained, heads.to(device)), training.data


def in_pairs(backbone: Backbone, data: Dataset, settings: PairSettings, repeats: int = 1) -> Dataset:
    """Samples seen in pairs: images in the size of the backbone, whatever their usual view."""
    view = paired_view(backbone.spec, data.view, settings.crop, settings.feature_dropout, repeats)
    return Dataset(data.samples, view)


def pair_probabilities(
    forward: Callable[[Tensor, bool], Tensor], views: Tensor, over: bool
) -> tuple[Tensor, Tensor]:
    """Cluster probabilities of both halves of all pairs of a batch.

    The plain views pass through the network once, and the changed ones in a pass of their own, so that
    each have their own statistics in batch normalisation.

    Args:
        forward: gives logits ``(H, m, K)`` of ``m`` inputs.
        views: ``(n, 1 + R, ...)``, the plain view of each sample and ``R`` changed ones.
        over: whether to ask the over-clustering head.

    Returns:
        Two of ``(H, R n, K)``: pair ``r n + i`` is the plain and the ``r``-th changed view of sample ``i``.
    """
    repeats = views.shape[1] - 1
    plain = forward(views[:, 0], over)
    changed = forward(views[:, 1:].transpose(0, 1).flatten(0, 1), over)
    first, second = (at_least_single(logits).softmax(-1) for logits in (plain, changed))
    return first.repeat(1, repeats, 1), second


def optimise(heads: TwoHeads, settings: PairSettings) -> torch.optim.Optimizer:
    """The originals' optimiser: Adam, without decay of weights or rate."""
    return torch.optim.Adam(heads.parameters(), lr=settings.learning_rate)


def conclude(
    session: Session[PairSettings], loop: Loop, networks: Networks, data: Dataset, *, name: str
) -> Clustering:
    """Take the sub-head with the lowest loss over all samples, without labels, and cluster them with it."""
    size = session.settings.prediction_batch_size
    best = _information(session, networks.heads, data, name, size).argmax()
    with torch.no_grad():
        networks.trained.prototypes.copy_(networks.heads.clusters[best])
    probabilities = predict(networks.trained, data.samples, data.view, session.runtime, size)
    labels = loop.finish(probabilities)
    return Clustering(labels, loop.seconds, loop.images_seen, networks.whole.eval())


def _information(
    session: Session[PairSettings], heads: TwoHeads, data: Dataset, name: str, size: int
) -> Tensor:
    """Mutual information ``(H,)`` of the views of all samples, for each sub-head that makes clusters."""
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
