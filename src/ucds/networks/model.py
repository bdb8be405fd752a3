"""The clustering model: an encoder (a backbone and a bottleneck) and prototypes, one per cluster."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ucds.encoders.spec import EncoderSpec
from ucds.networks.spec import Backbone, identity_backbone


class ModelOutput(NamedTuple):
    """Output of a clustering model for n inputs.

    Attributes:
        features: bottleneck features, ``(n, d_f)``.
        logits: inner products of features and prototypes, ``(n, K)``; their softmax is the assignment.
    """

    features: Tensor
    logits: Tensor


class ProjectionHead(NamedTuple):
    """A known start of bottleneck and prototypes: project features onto axes, compare with prototypes.

    Attributes:
        axes: ``(width, w)`` directions as columns, at most as many as the bottleneck is wide.
        mean: ``(width,)`` vector that is subtracted from the backbone's features, after their normalisation.
        variances: ``(w,)`` variances of the projected features.
        prototypes: ``(w, K)`` prototypes of the clusters in the projected space, as columns.
    """

    axes: Tensor
    mean: Tensor
    variances: Tensor
    prototypes: Tensor


class Encoder(nn.Module):
    """Backbone and bottleneck: maps inputs to features ``(n, d_f)``, whatever the width of the backbone.

    The bottleneck is linear with batch normalisation and no rectifier: only width 256 gives the paper's
    11.32 M parameters, and this is the form of SHOT and DINE.

    Attributes:
        backbone: maps inputs to ``(n, width)`` features.
        bottleneck: maps those features to ``(n, d_f)``.
        unit_features: whether the backbone's features are brought to unit length before the bottleneck.
    """

    def __init__(
        self,
        backbone: Backbone,
        bottleneck_width: int,
        unit_features: bool,
        head: ProjectionHead | None,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        # Made without weights: PyTorch's own generator would draw them, only for them to be replaced.
        linear = nn.Linear(backbone.spec.width, bottleneck_width, device="meta").to_empty(device="cpu")
        norm = nn.BatchNorm1d(bottleneck_width)
        nn.init.zeros_(linear.bias)
        if head is None:
            nn.init.xavier_normal_(linear.weight, generator=generator)
        else:
            _project(linear, norm, head)
        self.backbone = backbone.module
        self.unit_features = unit_features
        self.bottleneck = nn.Sequential(OrderedDict(linear=linear, norm=norm))

    def forward(self, inputs: Tensor, means: Tensor | None = None) -> Tensor:
        """Compute the features ``(n, d_f)`` of a batch of inputs, see :class:`ClusteringModel`."""
        features = self.backbone_features(inputs)
        if means is None:
            return torch.as_tensor(self.bottleneck(features))
        linear, norm = cast(tuple[nn.Linear, nn.BatchNorm1d], tuple(self.bottleneck))
        biases = torch.where(means.isnan().any(1, keepdim=True), linear.bias, -(means @ linear.weight.T))
        return torch.as_tensor(norm(nn.functional.linear(features, linear.weight) + biases))

    def backbone_features(self, inputs: Tensor) -> Tensor:
        """Compute the features ``(n, width)`` of a batch of inputs below the bottleneck."""
        features: Tensor = self.backbone(inputs)
        return nn.functional.normalize(features, dim=-1) if self.unit_features else features


@torch.no_grad()
def _project(linear: nn.Linear, norm: nn.BatchNorm1d, head: ProjectionHead) -> None:
    """Set the bottleneck to the projection onto the head's axes; outputs beyond them are zero.

    The batch normalisation is the identity in evaluation mode and nearly so in training mode: the variances
    are its running statistics, and their square roots its weights.
    """
    assert norm.running_var is not None
    kept = head.axes.shape[1]
    linear.weight.zero_()
    linear.weight[:kept] = head.axes.T
    linear.bias[:kept] = -head.mean @ head.axes
    norm.running_var[:kept] = head.variances
    norm.weight[:kept] = (head.variances + norm.eps).sqrt()


class ClusteringModel(nn.Module):
    """Assigns inputs to K clusters by the inner products of their features with K prototypes.

    Args:
        backbone: network below the bottleneck; its module becomes part of the model, uncopied.
        n_clusters: number of clusters, K.
        bottleneck_width: width of the features, d_f.
        unit_features: whether the backbone's features are brought to unit length first.
        head: known start of bottleneck and prototypes; ``None`` starts them with normal weights after Xavier
            and zero biases.
        generator: source of random weights, on the CPU; PyTorch's global one if ``None``.

    Attributes:
        encoder: encoder, the paper's F.
        prototypes: prototypes, the paper's mu, ``(d_f, K)``: a linear layer without bias.
        spec: description of the backbone.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_clusters: int,
        *,
        bottleneck_width: int = 256,
        unit_features: bool = False,
        head: ProjectionHead | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        assert min(n_clusters, bottleneck_width) >= 1
        self.spec: EncoderSpec = backbone.spec
        self.encoder = Encoder(backbone, bottleneck_width, unit_features, head, generator)
        self.prototypes = nn.Parameter(torch.zeros(bottleneck_width, n_clusters))
        if head is None:
            nn.init.xavier_normal_(self.prototypes, generator=generator)
        else:
            self.prototypes.data[: len(head.prototypes)] = head.prototypes

    def forward(self, inputs: Tensor, means: Tensor | None = None) -> ModelOutput:
        """Compute features and logits of a batch of inputs, which the backbone understands.

        Args:
            inputs: ``(n, ...)`` batch.
            means: ``(n, width)`` mean from which each input is seen in place of the model's own, as in
                :meth:`recentred`; a row of NaN stands for the model's own.
        """
        features = self.encoder(inputs, means)
        return ModelOutput(features, features @ self.prototypes)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.prototypes.shape[1]

    @property
    def bottleneck_width(self) -> int:
        """Width of the features, d_f."""
        return self.prototypes.shape[0]

    def head(self) -> ClusteringModel:
        """Return the layers above the backbone as a model of its own, for features computed once.

        It shares bottleneck and prototypes with this model: training one trains the other, running statistics
        included. Move the model to its device first, for moving replaces buffers.
        """
        return self.on(identity_backbone(self.spec.width))

    def on(self, backbone: Backbone) -> ClusteringModel:
        """Return the layers above the backbone on another one of the same width, moved to their device."""
        model = ClusteringModel(
            backbone,
            self.n_clusters,
            bottleneck_width=self.bottleneck_width,
            unit_features=self.encoder.unit_features,
            generator=torch.Generator(),
        )
        model.encoder.bottleneck = self.encoder.bottleneck
        model.prototypes = self.prototypes
        return model.train(self.training).to(self.prototypes.device)

    def recentred(self, mean: Tensor) -> ClusteringModel:
        """Return a copy that subtracts another mean from the backbone's features.

        A model that was built from a :class:`ProjectionHead` sees samples from a mean that is a part of the
        bottleneck's bias. Samples of a domain that the model has not seen are compared better from their own
        mean.

        Args:
            mean: ``(width,)`` mean of the backbone's features, after their normalisation.
        """
        model = copy.deepcopy(self)
        linear: nn.Linear = model.encoder.bottleneck.linear  # type: ignore[assignment]
        with torch.no_grad():
            linear.bias.copy_(-(linear.weight @ mean.to(linear.weight)))
        return model

    def count_parameters(self) -> int:
        """Count the parameters, frozen ones included."""
        return sum(weight.numel() for weight in self.parameters())
