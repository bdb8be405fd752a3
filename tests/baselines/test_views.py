"""Tests of what the baselines see: crops, pairs, colours, dropped features, edges."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ucds.baselines.views import (
    LUMA,
    PairedImageView,
    PairedVectorView,
    ResizedImageView,
    Sobel,
    change_colours,
    sobel_network,
)
from ucds.data.dataset import ImageView
from ucds.encoders.spec import EncoderSpec
from ucds.gradients.views import RandomCropView

pytestmark = pytest.mark.torch

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
NONE, UNIT = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
USUAL = ImageView()


def spec(size: int, *colours: tuple[float, float, float]) -> EncoderSpec:
    return EncoderSpec("any", 512, size, *colours)


def images(n: int = 4, side: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, 3, side, side), generator=generator, dtype=torch.uint8)


def draws(view: PairedImageView | ResizedImageView, n: int = 4) -> Tensor:
    return view.draw(n, torch.Generator().manual_seed(1))


def test_a_crop_of_the_networks_size_is_the_usual_view() -> None:
    view, usual = ResizedImageView(spec(24, MEAN, STD), USUAL, 0.75), RandomCropView(24, MEAN, STD)
    assert view.input_shape == (3, 24, 24)
    torch.testing.assert_close(view.train(images(), draws(view)), usual.train(images(), draws(view)))
    np.testing.assert_allclose(view.test(images().numpy()), usual.test(images().numpy()), atol=1e-6)


def test_other_crops_are_brought_to_size_without_aliasing() -> None:
    stripes = (255 * (torch.arange(32) % 2)).to(torch.uint8).expand(1, 3, 32, 32)
    view = ResizedImageView(spec(8), USUAL, 0.75)
    small = view.test(stripes.numpy())
    assert small.shape == (1, 3, 8, 8)
    assert np.abs(small[..., 1:-1] - 0.5).max() < 0.1  # what every third pixel alone would not give
    assert view.train(stripes, torch.rand(1, 3)).shape == (1, 3, 8, 8)


def test_pairs_are_a_plain_crop_and_changed_ones() -> None:
    view, raw = PairedImageView(spec(24), USUAL, 0.75, repeats=2), images()
    chosen = draws(view)
    chosen[:, 2:5], chosen[:, 5:9] = torch.tensor([0.0, 0.0, 0.9]), 0.5  # top left, unflipped, no change
    pairs = view.train(raw, chosen)
    assert pairs.shape == (4, 3, 3, 24, 24)
    pixels = raw / 255
    torch.testing.assert_close(pairs[:, 1], pixels[..., :24, :24], atol=1e-3, rtol=0)
    crops = RandomCropView(24, NONE, UNIT)
    plain = torch.cat([chosen[:, :2], torch.ones(4, 1)], dim=1)
    torch.testing.assert_close(pairs[:, 0], crops.train(raw, plain))
    last = change_colours(crops.train(raw, chosen[:, 9:12]), chosen[:, 12:])
    torch.testing.assert_close(pairs[:, 2], last)


def test_pairs_are_normalised_last() -> None:
    view, bare = (PairedImageView(made, USUAL, 0.75) for made in (spec(16, MEAN, STD), spec(16)))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    expected = (bare.train(images(), draws(view)) - mean) / std
    torch.testing.assert_close(view.train(images(), draws(view)), expected)


def test_the_draws_of_a_sample_are_its_own() -> None:
    view, raw = PairedImageView(spec(16), USUAL, 0.75), images()
    whole = view.train(raw, draws(view))
    torch.testing.assert_close(view.train(raw[2:], draws(view)[2:]), whole[2:])


def colours(
    brightness: float = 0.5, contrast: float = 0.5, saturation: float = 0.5, hue: float = 0.5
) -> Tensor:
    pixels = 0.25 + 0.5 * images(2, 8) / 255
    found = change_colours(pixels, torch.tensor([[brightness, contrast, saturation, hue]]).expand(2, -1))
    assert found.shape == pixels.shape
    assert found.min() >= 0
    assert found.max() <= 1
    return found


def luma(pixels: Tensor) -> Tensor:
    return torch.einsum("c,nchw->nhw", LUMA, pixels)


def test_colour_changes_by_hand() -> None:
    plain = colours()
    torch.testing.assert_close(plain, 0.25 + 0.5 * images(2, 8) / 255, atol=1e-3, rtol=0)
    torch.testing.assert_close(colours(brightness=0.0), 0.6 * plain, atol=1e-3, rtol=0)
    mean = luma(plain).mean((1, 2)).view(2, 1, 1, 1)
    torch.testing.assert_close(colours(contrast=0.25), mean + 0.8 * (plain - mean), atol=1e-3, rtol=0)
    grey = luma(plain).unsqueeze(1)
    torch.testing.assert_close(colours(saturation=0.0), grey + 0.6 * (plain - grey), atol=1e-3, rtol=0)


def test_hue_turns_colours_and_leaves_grey_values() -> None:
    pixels = 0.4 + 0.2 * images(2, 8) / 255
    turned = change_colours(pixels, torch.tensor([[0.5, 0.5, 0.5, 0.9]]).expand(2, -1))
    assert (turned - pixels).abs().max() > 0.02
    torch.testing.assert_close(luma(turned), luma(pixels), atol=1e-3, rtol=0)


def test_dropped_features_by_hand() -> None:
    vectors, chance = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.1, 0.3, 0.9]])
    pair = PairedVectorView(3, 0.25).train(vectors, chance)
    torch.testing.assert_close(pair, torch.tensor([[[1.0, 2.0, 3.0], [0.0, 2.0 / 0.75, 3.0 / 0.75]]]))
    assert torch.equal(PairedVectorView(3, 0.0).train(vectors, chance)[:, 1], vectors)


def test_pairs_of_vectors() -> None:
    view, vectors = PairedVectorView(500, 0.2, repeats=3), torch.randn(6, 500)
    pairs = view.train(vectors, view.draw(6, torch.Generator().manual_seed(0)))
    assert pairs.shape == (6, 4, 500)
    assert torch.equal(pairs[:, 0], vectors)
    dropped = (pairs[:, 1:] == 0).float().mean((0, 2))
    torch.testing.assert_close(dropped, torch.full((3,), 0.2), atol=0.03, rtol=0)
    assert not torch.equal(pairs[:, 1], pairs[:, 2])
    assert np.array_equal(view.test(vectors.numpy()), vectors)


def test_the_backbone_says_how_images_are_seen() -> None:
    view = ResizedImageView(spec(64, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), USUAL, 0.5)
    assert (view.input_shape, view.crop) == ((3, 64, 64), 0.5)
    black = np.zeros((1, 3, 256, 256), np.uint8)
    np.testing.assert_allclose(view.test(black)[0, :, 0, 0], [-1 / 5, -1 / 3, -3 / 7], rtol=1e-6)
    unsaid = ResizedImageView(EncoderSpec("any", 512), ImageView(48), 0.5)
    assert unsaid.input_shape == (3, 48, 48)


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


def test_the_stem_fits_small_pictures() -> None:
    backbone = sobel_network()
    stem = next(layer for layer in backbone.module.modules() if isinstance(layer, nn.Conv2d))
    assert (stem.in_channels, stem.kernel_size[0], stem.stride[0]) == (2, 3, 1)
    assert (backbone.spec.width, backbone.spec.input_size, backbone.weights) == (512, 64, "none (random)")
    assert backbone.module.eval()(torch.rand(2, 3, 32, 32)).shape == (2, 512)


def test_the_seed_decides_the_weights_and_nothing_else() -> None:
    before = torch.get_rng_state()
    one, again, other = (sobel_network(size=32, seed=seed).module.state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["1.conv1.weight"], other["1.conv1.weight"])
    assert not torch.equal(one["1.layer1.0.conv1.weight"], other["1.layer1.0.conv1.weight"])
