"""The clustering model: an encoder (a backbone and a bottleneck) and prototypes, one per cluster."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ucds.backbones import Backbone, BackboneSpec, identity_backbone
from ucds.errors import InputError

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


class ProjectionHead(NamedTuple):
    """A known start of bottleneck and prototypes: project features onto axes, compare with prototypes.

    Attributes:
        axes: ``(width, w)`` directions as columns, at most as many as the bottleneck is wide.
        mean: ``(width,)`` subtracted from the backbone's features, after their normalisation if any.
        variances: ``(w,)`` variances of the projected features.
        prototypes: ``(w, K)``.
    """

    axes: Tensor
    mean: Tensor
    variances: Tensor
    prototypes: Tensor


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
        head: ProjectionHead | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        # skip_init keeps PyTorch's global generator out: all random numbers are drawn from the one given.
        linear: nn.Linear = skip_init(  # type: ignore[no-untyped-call]
            nn.Linear, backbone.spec.width, bottleneck_width
        )
        nn.init.zeros_(linear.bias)
        if head is None:
            nn.init.xavier_normal_(linear.weight, generator=generator)
        self.backbone = backbone.module
        self.unit_features = unit_features
        self.bottleneck = nn.Sequential(OrderedDict(linear=linear, norm=nn.BatchNorm1d(bottleneck_width)))
        if head is not None:
            self._project(head)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features ``(n, d_f)`` of a batch of inputs."""
        features: Tensor = self.backbone(inputs)
        if self.unit_features:
            features = nn.functional.normalize(features, dim=-1)
        features = self.bottleneck(features)
        return features

    @torch.no_grad()
    def _project(self, head: ProjectionHead) -> None:
        """Let the bottleneck project onto the head's axes; width that is left over is silent.

        Its batch normalisation changes nothing in evaluation mode, and in training mode it takes over as
        running statistics adapt: it has the variances both as statistics and, by their roots, as weights.
        """
        linear, norm = self.bottleneck
        assert isinstance(linear, nn.Linear)
        assert isinstance(norm, nn.BatchNorm1d)
        assert norm.running_var is not None
        kept = head.axes.shape[1]
        linear.weight.zero_()
        linear.weight[:kept] = head.axes.T
        linear.bias[:kept] = -head.mean @ head.axes
        norm.running_var[:kept] = head.variances
        norm.weight[:kept] = (head.variances + norm.eps).sqrt()


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
        head: ProjectionHead | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the new layers: as ``head`` says, or with normal weights after Xavier and zero biases.

        Args:
            backbone: The network below the bottleneck; its module becomes part of the model, uncopied.
            n_clusters: Number of clusters, K.
            bottleneck_width: Width of the features, d_f.
            unit_features: Whether the backbone's features are brought to unit length first.
            head: Known start of the new layers; random weights if ``None``.
            generator: Source of random weights, on the CPU; PyTorch's global one if ``None``.

        Raises:
            InputError: If there is no cluster, or the bottleneck has no width.
            ValueError: If the shapes of the head do not fit each other or the model.
        """
        super().__init__()
        if n_clusters < 1:
            raise InputError(f"clustering needs at least 1 cluster, not {n_clusters}")
        if bottleneck_width < 1:
            raise InputError(f"the bottleneck needs a width of at least 1, not {bottleneck_width}")
        if head is not None:
            _check_head(head, backbone.spec.width, bottleneck_width, n_clusters)
        self._spec = backbone.spec
        self.encoder = Encoder(
            backbone,
            bottleneck_width=bottleneck_width,
            unit_features=unit_features,
            head=head,
            generator=generator,
        )
        self.prototypes = nn.Parameter(torch.zeros(bottleneck_width, n_clusters))
        if head is None:
            nn.init.xavier_normal_(self.prototypes, generator=generator)
        else:
            self.prototypes.data[: len(head.prototypes)] = head.prototypes

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

    def count_parameters(self) -> int:
        """Number of parameters, frozen ones included."""
        return sum(weight.numel() for weight in self.parameters())


def _check_head(head: ProjectionHead, width: int, bottleneck_width: int, n_clusters: int) -> None:
    kept = head.axes.shape[1]
    fits = kept <= bottleneck_width and head.prototypes.shape == (kept, n_clusters)
    if len(head.axes) != width or not fits or len(head.variances) != kept:
        shapes = tuple(head.axes.shape), tuple(head.prototypes.shape)
        raise ValueError(f"axes {shapes[0]} and prototypes {shapes[1]} do not fit")


def state_digest(module: nn.Module) -> str:
    """Compute a hexadecimal digest of a module's weights: equal for equal weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(array.shape)} {array.dtype}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
