"""Tests of the encoder that sees edges only."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ucds.baselines.sobel import Sobel, sobel_backbone
from ucds.errors import UserError


def test_gradients_of_a_slope() -> None:
    slope = torch.arange(6.0).expand(1, 3, 5, 6)
    horizontal, vertical = Sobel()(slope)[0]
    torch.testing.assert_close(horizontal[1:-1, 1:-1], torch.full((3, 4), -8.0))  # (1 + 2 + 1) * 2 steps
    torch.testing.assert_close(vertical[1:-1, 1:-1], torch.zeros(3, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(Sobel()(slope.mT)[0, 1], horizontal.T)


def test_colours_of_one_grey_value_look_alike() -> None:
    left, right = torch.tensor([0.5, 0.2, 0.3]), torch.tensor([0.5, 0.2, 0.3])
    right[0] += 0.587 * 0.1
    right[1] -= 0.299 * 0.1
    image = torch.cat([c.view(1, 3, 1, 1).expand(1, 3, 5, 4) for c in (left, right)], dim=3)
    assert Sobel()(image)[..., 1:-1, 1:-1].abs().max() < 1e-6


@pytest.mark.parametrize(("size", "kernel", "stride"), [(64, 3, 1), (224, 7, 2)])
def test_the_stem_fits_the_pictures(size: int, kernel: int, stride: int) -> None:
    backbone = sobel_backbone(size=size)
    stem = next(layer for layer in backbone.module.modules() if isinstance(layer, nn.Conv2d))
    assert (stem.in_channels, stem.kernel_size[0], stem.stride[0]) == (2, kernel, stride)
    assert (backbone.spec.width, backbone.spec.input_size, backbone.weights) == (512, size, "none (random)")
    # ResNet-18 without classifier has 11,176,512, of which 9,408 see three colours.
    expected = 11_176_512 - 64 * 3 * 49 + 64 * 2 * kernel * kernel
    assert sum(weight.numel() for weight in backbone.module.parameters()) == expected
    assert backbone.module.eval()(torch.rand(2, 3, 64, 64)).shape == (2, 512)


def test_the_seed_decides_the_weights_and_nothing_else() -> None:
    before = torch.get_rng_state()
    one, again, other = (sobel_backbone(size=32, seed=seed).module.state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["1.conv1.weight"], other["1.conv1.weight"])
    assert not torch.equal(one["1.layer1.0.conv1.weight"], other["1.layer1.0.conv1.weight"])


def test_other_networks_are_refused() -> None:
    with pytest.raises(UserError, match="a ResNet of torchvision .* not 'vgg16'"):
        sobel_backbone("vgg16")
