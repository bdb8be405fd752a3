"""The encoder of the baselines' own papers: a ResNet with random weights on two channels of edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ucds.backbones import Backbone, BackboneSpec
from ucds.backbones.spec import MODULE, channels_last
from ucds.baselines.views import LUMA
from ucds.errors import InputError

_SMALL = 128
"""Inputs below this size in pixels get IIC's stem for small pictures in place of ResNet's."""


class Sobel(nn.Module):
    """Computes the horizontal and the vertical brightness gradient of each pixel, without colours."""

    def __init__(self) -> None:
        super().__init__()
        slope = torch.outer(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([1.0, 0.0, -1.0]))
        self.register_buffer("filters", torch.stack([slope, slope.T]).unsqueeze(1))
        self.register_buffer("luma", LUMA.view(1, 3, 1, 1).clone())
        self.filters: Tensor
        self.luma: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Return the gradients ``(n, 2, h, w)`` of images ``(n, 3, h, w)``, which are padded with black."""
        grey = (images * self.luma).sum(1, keepdim=True)
        return functional.conv2d(grey, self.filters, padding=1)


def sobel_backbone(name: str = "resnet18", size: int = 64, *, seed: int = 0) -> Backbone:
    """Build the encoder that IIC, ACIDS and DeepCluster train from scratch.

    It takes RGB pixels between 0 and 1, as other backbones do. Below 128 pixels the stem is IIC's: a 3 x 3
    convolution of stride 1 and a 2 x 2 pooling.

    Args:
        name: name of a ResNet of torchvision.
        size: side of the inputs in pixels.
        seed: seed of the random weights; PyTorch's global generator is left as it was.

    Raises:
        InputError: there is no such ResNet.
    """
    from torchvision import models

    if name not in models.list_models(models, include="resnet*"):
        raise InputError(f"the Sobel encoder is a ResNet of torchvision ('resnet18'), not '{name}'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = models.get_model(name, weights=None)
        kernel, stride, padding = (3, 1, 1) if size < _SMALL else (7, 2, 3)
        network.conv1 = nn.Conv2d(2, 64, kernel, stride, padding, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    if size < _SMALL:
        network.maxpool = nn.MaxPool2d(2, stride=2, padding=1)
    width = network.fc.in_features
    network.fc = nn.Identity()
    spec = BackboneSpec(MODULE, width, size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return Backbone(nn.Sequential(Sobel(), channels_last(network)), spec, "none (random)")
