"""Views for the networks of DeepCluster, IIC and ACIDS: resized crops, single or in pairs, and their edges.

Random numbers are drawn on the CPU, and applied on the device of the samples, a batch at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ucds.data.dataset import View
from ucds.encoders.spec import FUNCTION, EncoderSpec
from ucds.gradients.views import RandomCropView, TrainingView
from ucds.math.arrays import FloatArray
from ucds.networks.encoder import NetworkEncoder, channels_last

_JITTER, _HUE = 0.4, 0.125
"""Strength of the originals' colour changes: of brightness, contrast and saturation; of hue, in turns."""

_TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_FROM_YIQ = torch.linalg.inv(_TO_YIQ)
LUMA = _TO_YIQ[0]
"""Weights of red, green and blue in the grey value of a pixel."""


class ResizedImageView(TrainingView):
    """A square crop, in the size and colours that a network takes, flipped half the time.

    ``crop`` is the side of the crop as a share of the image's. A network without a given size takes the size
    of the ``usual`` view; one without given colours takes pixel values between 0 and 1.
    """

    def __init__(self, spec: EncoderSpec, usual: View, crop: float) -> None:
        self.size, self.crop = spec.input_size or usual.input_shape[-1], crop
        colours = spec.mean or (0.0, 0.0, 0.0), spec.std or (1.0, 1.0, 1.0)
        self._mean, self._std = (torch.tensor(values).view(3, 1, 1) for values in colours)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of a view, `(3, size, size)`."""
        return 3, self.size, self.size

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw `(n, 3)` uniform numbers in [0, 1): place of the crop, and flip."""
        return torch.rand(n, 3, generator=generator)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Return crops `(b, 3, size, size)` of `(b, 3, S, S)` uint8 images."""
        return self._normalise(self._resize(self._crops(raw).train(raw, draws)))

    def test(self, raw: NDArray[Any]) -> FloatArray:
        """Return the resized centre crop of each image."""
        crops = torch.from_numpy(self._crops(raw).test(raw))
        return np.asarray(self._normalise(self._resize(crops)).numpy())

    def _crops(self, raw: Tensor | NDArray[Any]) -> RandomCropView:
        return RandomCropView(round(self.crop * raw.shape[-1]), mean=(0, 0, 0), std=(1, 1, 1))

    def _resize(self, images: Tensor) -> Tensor:
        if images.shape[-1] == self.size:
            return images
        return functional.interpolate(images, self.size, mode="bilinear", antialias=True)

    def _normalise(self, images: Tensor) -> Tensor:
        return (images - self._mean.to(images.device)) / self._std.to(images.device)


class PairedImageView(ResizedImageView):
    """A plain crop of each image, and ``repeats`` crops, flipped half the time and changed in colour."""

    def __init__(self, spec: EncoderSpec, usual: View, crop: float, repeats: int = 1) -> None:
        super().__init__(spec, usual, crop)
        self.repeats = repeats

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw `(n, 2 + 7 repeats)`: place of the plain crop; place, flip and 4 colours of the others."""
        return torch.rand(n, 2 + 7 * self.repeats, generator=generator)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Return views `(b, 1 + repeats, 3, size, size)` of uint8 images `(b, 3, S, S)`, plain ones first."""
        crops = self._crops(raw)
        unflipped = functional.pad(draws[:, :2], (0, 1), value=1.0)
        views = [self._resize(crops.train(raw, unflipped))]
        for own in torch.split(draws[:, 2:], 7, dim=1):
            changed = self._resize(crops.train(raw, own[:, :3]))
            views.append(change_colours(changed, own[:, 3:].to(raw.device)))
        return self._normalise(torch.stack(views, dim=1))


class PairedVectorView(TrainingView):
    """Each vector as it is, and copies of it with a share of the features dropped."""

    def __init__(self, width: int, dropout: float, repeats: int = 1) -> None:
        self.width, self.dropout, self.repeats = width, dropout, repeats

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw `(n, repeats * width)` uniform numbers in [0, 1)."""
        return torch.rand(n, self.repeats * self.width, generator=generator)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Return views `(b, 1 + repeats, width)` of vectors `(b, width)`, the vector itself first."""
        plain = raw.float().unsqueeze(1)
        draws = draws.to(raw.device).view(len(raw), self.repeats, self.width)
        changed = plain * (draws >= self.dropout) / (1 - self.dropout)  # what is left keeps its mean
        return torch.cat([plain, changed], dim=1)


def change_colours(images: Tensor, draws: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, in this order.

    Saturation and hue are a scaling and a rotation of the colour plane of YIQ, which keep the grey value. The
    draws are `(n, 4)` uniform numbers in [0, 1); 0.5 changes nothing.
    """
    signed = 2 * draws - 1
    brightness, contrast, saturation = (1 + _JITTER * signed[:, :3]).T.reshape(3, -1, 1, 1, 1)
    images = (brightness * images).clamp(0, 1)
    grey = torch.einsum("c,nchw->n", LUMA.to(images.device), images).view(-1, 1, 1, 1)
    grey = grey / (images.shape[-1] * images.shape[-2])
    images = torch.lerp(grey, images, contrast).clamp(0, 1)
    angle = 2 * math.pi * _HUE * signed[:, 3]
    turn = torch.zeros(len(images), 3, 3, device=images.device)
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = saturation.flatten() * angle.cos()
    turn[:, 2, 1] = saturation.flatten() * angle.sin()
    turn[:, 1, 2] = -turn[:, 2, 1]
    colours = _FROM_YIQ.to(images.device) @ turn @ _TO_YIQ.to(images.device)
    return torch.einsum("nij,njhw->nihw", colours, images).clamp(0, 1)


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


def sobel_network(size: int = 64, *, seed: int = 0) -> NetworkEncoder:
    """Build the encoder that IIC, ACIDS and DeepCluster train from scratch: a ResNet-18 on edges.

    It takes RGB pixels between 0 and 1, as other networks do. Its stem is IIC's for small pictures: a 3 x 3
    convolution of stride 1 and a 2 x 2 pooling. The inputs have ``size`` pixels a side. PyTorch's global
    generator is left as it was.
    """
    from torchvision import models

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = models.resnet18(weights=None)
        network.conv1 = nn.Conv2d(2, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    network.maxpool = nn.MaxPool2d(2, stride=2, padding=1)
    width = network.fc.in_features
    network.fc = nn.Identity()
    spec = EncoderSpec(FUNCTION, width, size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return NetworkEncoder(nn.Sequential(Sobel(), channels_last(network)), spec, "none (random)")
