"""The clustering model: an encoder (a network and a bottleneck) and prototypes, one per cluster."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ucds.encoders.spec import EncoderSpec
from ucds.heads import Head
from ucds.networks.encoder import NetworkEncoder


class ModelOutput(NamedTuple):
    """Output of a clustering model for n inputs."""

    features: Tensor  # bottleneck features (n, d_f)
    logits: Tensor  # inner products of features and prototypes (n, K); their softmax is the assignment


class ClusteringModel(nn.Module):
    """Assigns inputs to K clusters by the inner products of their features with K prototypes.

    The bottleneck is linear with batch normalisation and no rectifier: only width 256 gives the paper's
    11.32 M parameters, and this is the form of SHOT and DINE. New layers start with normal weights after
    Xavier and zero biases, which come from the ``generator``, on the CPU, or PyTorch's global one. The module
    of the network becomes part of the model, uncopied.
    """

    def __init__(
        self,
        network: NetworkEncoder,
        n_clusters: int,
        *,
        bottleneck_width: int = 256,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        assert min(n_clusters, bottleneck_width) >= 1
        self.spec: EncoderSpec = network.spec
        # Made without weights: PyTorch's own generator would draw them, only for them to be replaced.
        linear = nn.Linear(network.spec.width, bottleneck_width, device="meta").to_empty(device="cpu")
        nn.init.zeros_(linear.bias)
        nn.init.xavier_normal_(linear.weight, generator=generator)
        bottleneck = nn.Sequential(OrderedDict(linear=linear, norm=nn.BatchNorm1d(bottleneck_width)))
        # The paper's F, to features (n, d_f), and its mu, a linear layer without bias.
        self.encoder = nn.Sequential(OrderedDict(backbone=network.module, bottleneck=bottleneck))
        self.prototypes = nn.Parameter(torch.zeros(bottleneck_width, n_clusters))
        nn.init.xavier_normal_(self.prototypes, generator=generator)

    def forward(self, inputs: Tensor) -> ModelOutput:
        """Compute features and logits of a batch ``(n, ...)`` of the network's inputs."""
        features = self.encoder(inputs)
        return ModelOutput(features, features @ self.prototypes)

    @property
    def n_clusters(self) -> int:
        """Number of clusters, K."""
        return self.prototypes.shape[1]

    @property
    def bottleneck_width(self) -> int:
        """Width of the features, d_f."""
        return self.prototypes.shape[0]

    def count_parameters(self) -> int:
        """Count the parameters, frozen ones included."""
        return sum(weight.numel() for weight in self.parameters())


@torch.no_grad()
def fold(model: ClusteringModel) -> Head:
    """Return the layers above the network as arrays, with batch normalisation folded into the affine map.

    Folding uses double precision, and the statistics of evaluation mode.
    """
    layers = copy.deepcopy(model.encoder.bottleneck).cpu().double()  # MPS devices have no double precision
    linear, norm = cast(tuple[nn.Linear, nn.BatchNorm1d], layers)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight = scale[:, None] * linear.weight
    bias = norm.bias + scale * (linear.bias - norm.running_mean)
    parts = (weight, bias, model.prototypes)
    weights, shift, prototypes = (each.float().cpu().numpy().copy() for each in parts)
    return Head(weights, shift, prototypes)
