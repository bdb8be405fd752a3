"""The clustering model: an encoder (a backbone and a bottleneck) and prototypes, one per cluster."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ucds.backbones import Backbone, BackboneSpec, identity_backbone
from ucds.errors import UserError

BOTTLENECK_WIDTH = 256


class ModelOutput(NamedTuple):
    """What a clustering model says about n inputs.

    Attributes:
        features: Bottleneck features, ``(n, d_f)``.
        logits: Inner products of features and prototypes, ``(n, K)``; their softmax is the assignment.
    """

    features: Tensor
    logits: Tensor


class ParameterGroups(NamedTuple):
    """Parameters by their age, for two learning rates; each list may be empty."""

    backbone: list[nn.Parameter]
    new: list[nn.Parameter]


class Encoder(nn.Module):
    """Maps inputs to features of the width all clients share, whatever their backbone.

    The bottleneck is linear with batch normalisation and no rectifier: only width 256 gives the paper's
    11.32 M parameters, and this is the form of SHOT and DINE.

    Attributes:
        backbone: Maps inputs to ``(n, width)`` features.
        bottleneck: Maps those to ``(n, d_f)``.
        unit_features: Whether the backbone's features are brought to unit length in between.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        bottleneck_width: int = BOTTLENECK_WIDTH,
        unit_features: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        # skip_init keeps PyTorch's global generator out: all random numbers are drawn from the one given.
        linear: nn.Linear = skip_init(  # type: ignore[no-untyped-call]
            nn.Linear, backbone.spec.width, bottleneck_width
        )
        nn.init.xavier_normal_(linear.weight, generator=generator)
        nn.init.zeros_(linear.bias)
        self.backbone = backbone.module
        self.unit_features = unit_features
        self.bottleneck = nn.Sequential(OrderedDict(linear=linear, norm=nn.BatchNorm1d(bottleneck_width)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Features ``(n, d_f)`` of a batch of inputs."""
        features: Tensor = self.backbone(inputs)
        if self.unit_features:
            features = nn.functional.normalize(features, dim=-1)
        features = self.bottleneck(features)
        return features


class ClusteringModel(nn.Module):
    """Assigns inputs to K clusters by the inner product of their features with K prototypes.

    Attributes:
        encoder: The encoder F of the paper.
        prototypes: The prototypes mu, ``(d_f, K)``, a linear layer without bias.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_clusters: int,
        *,
        bottleneck_width: int = BOTTLENECK_WIDTH,
        unit_features: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the new layers, with normal weights after Xavier and zero biases.

        Args:
            backbone: The network below the bottleneck; its module becomes part of the model, uncopied.
            n_clusters: Number of clusters, K.
            bottleneck_width: Width of the features, d_f.
            unit_features: Whether the backbone's features are brought to unit length first.
            generator: Source of the new layers' weights, on the CPU; PyTorch's global one if ``None``.

        Raises:
            UserError: If there is no cluster, or the bottleneck has no width.
        """
        super().__init__()
        if n_clusters < 1:
            raise UserError(f"clustering needs at least 1 cluster, not {n_clusters}")
        if bottleneck_width < 1:
            raise UserError(f"the bottleneck needs a width of at least 1, not {bottleneck_width}")
        self._spec = backbone.spec
        self.encoder = Encoder(
            backbone, bottleneck_width=bottleneck_width, unit_features=unit_features, generator=generator
        )
        self.prototypes = nn.Parameter(torch.empty(bottleneck_width, n_clusters))
        nn.init.xavier_normal_(self.prototypes, generator=generator)

    def forward(self, inputs: Tensor) -> ModelOutput:
        """Features and logits of a batch of inputs, which the backbone understands."""
        features = self.encoder(inputs)
        return ModelOutput(features, features @ self.prototypes)

    @property
    def spec(self) -> BackboneSpec:
        """Description of the backbone."""
        return self._spec

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.prototypes.shape[1]

    @property
    def bottleneck_width(self) -> int:
        """Width of the features, d_f."""
        return self.prototypes.shape[0]

    def parameter_groups(self) -> ParameterGroups:
        """The backbone's parameters and the new layers', each without frozen ones."""
        new = [*self.encoder.bottleneck.parameters(), self.prototypes]
        return ParameterGroups(
            backbone=[weight for weight in self.encoder.backbone.parameters() if weight.requires_grad],
            new=[weight for weight in new if weight.requires_grad],
        )

    def head(self) -> ClusteringModel:
        """The layers above the backbone as a model of its own, to train on features computed once.

        It shares bottleneck and prototypes with this model: training one trains the other, running
        statistics included. Move the model to its device first, for moving replaces buffers.
        """
        model = ClusteringModel(
            identity_backbone(self.spec.width),
            self.n_clusters,
            bottleneck_width=self.bottleneck_width,
            unit_features=self.encoder.unit_features,
            generator=torch.Generator(),
        )
        model.encoder.bottleneck = self.encoder.bottleneck
        model.prototypes = self.prototypes
        return model.train(self.training)

    @torch.no_grad()
    def set_head(self, axes: Tensor, mean: Tensor, variances: Tensor, prototypes: Tensor) -> None:
        """Give bottleneck and prototypes a known start in place of a random one.

        The bottleneck projects ``features - mean`` onto the axes. Its batch normalisation changes nothing
        in evaluation mode, and in training mode it takes over as running statistics adapt: it has the
        variances both as statistics and, by their roots, as weights. Width that is left over is silent.

        Args:
            axes: ``(width, w)`` columns, at most as many as the bottleneck is wide.
            mean: ``(width,)`` of the backbone's features, after normalisation to unit length if any.
            variances: ``(w,)`` of the projected features.
            prototypes: ``(w, K)``.

        Raises:
            ValueError: The shapes do not fit each other or the model.
        """
        width, kept = axes.shape
        linear, norm = self.encoder.bottleneck
        assert isinstance(linear, nn.Linear)
        assert isinstance(norm, nn.BatchNorm1d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        fits = kept <= self.bottleneck_width and prototypes.shape == (kept, self.n_clusters)
        if width != linear.weight.shape[1] or not fits or len(variances) != kept:
            raise ValueError(f"axes {tuple(axes.shape)} and prototypes {tuple(prototypes.shape)} do not fit")
        for tensor in (linear.weight, linear.bias, norm.running_mean, norm.bias, self.prototypes):
            tensor.zero_()
        norm.running_var.fill_(1.0)
        norm.weight.fill_(1.0)
        linear.weight[:kept] = axes.T
        linear.bias[:kept] = -mean @ axes
        norm.running_var[:kept] = variances
        norm.weight[:kept] = (variances + norm.eps).sqrt()
        self.prototypes[:kept] = prototypes

    def count_parameters(self) -> int:
        """Number of parameters, frozen ones included."""
        return sum(weight.numel() for weight in self.parameters())
