"""Random crops and flips against a slow reference."""

import numpy as np
import pytest
import torch

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.data.dataset import ImageView, View
from ucds.gradients.views import RandomCropView, TrainingView, in_training

pytestmark = pytest.mark.torch


def images(n: int, size: int = 40) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def normalised(image: np.ndarray) -> np.ndarray:
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (image / 255 - mean) / std


def train_reference(raw: torch.Tensor, draws: torch.Tensor, crop: int) -> np.ndarray:
    views = []
    for image, (down, right, flip) in zip(raw.numpy(), draws.tolist(), strict=True):
        top = int(down * (image.shape[1] - crop + 1))
        left = int(right * (image.shape[2] - crop + 1))
        view = image[:, top : top + crop, left : left + crop]
        views.append(normalised(view[:, :, ::-1] if flip < 0.5 else view))
    return np.stack(views)


@pytest.mark.parametrize("shape", [(40, 40), (40, 28), (28, 40), (24, 24)])
def test_training_views_equal_the_reference_and_leave_the_images_alone(shape):
    view = RandomCropView(crop=24)
    raw, draws = images(50)[:, :, : shape[0], : shape[1]], view.draw(50, torch.Generator().manual_seed(1))
    before = raw.clone()
    result = view.train(raw, draws)
    assert result.dtype == torch.float32
    assert result.shape == (50, *view.input_shape) == (50, 3, 24, 24)
    np.testing.assert_allclose(result, train_reference(raw, draws, 24), atol=2e-6)
    assert torch.equal(raw, before)
    # processes apply their own rows of common draws
    assert torch.equal(result[3:6], view.train(raw[3:6], draws[3:6]))


def test_extreme_draws_stay_inside():
    view = RandomCropView(crop=24)
    nearly_one = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)).item()
    draws = torch.tensor([[0.0, 0.0, 0.9], [nearly_one, nearly_one, 0.0]])
    raw = images(2)
    np.testing.assert_allclose(view.train(raw, draws), train_reference(raw, draws, 24), atol=2e-6)


def test_all_offsets_and_flips_are_drawn_and_repeat_with_the_generator():
    draws, again = (RandomCropView(crop=30).draw(20_000, torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(draws, again)
    offsets = (draws[:, 0] * 11).long()
    assert torch.bincount(offsets).min() > 1600  # of 1818 expected
    assert abs((draws[:, 2] < 0.5).float().mean() - 0.5) < 0.02


def test_images_smaller_than_the_crop_and_other_numbers_of_draws_are_refused():
    view = RandomCropView(crop=41)
    with pytest.raises(ValueError, match="cannot be cropped"):
        view.train(images(2), view.draw(2, torch.Generator()))
    with pytest.raises(ValueError, match="rows of draws"):
        view.train(images(2, size=41), view.draw(3, torch.Generator()))


def test_vectors_pass_unchanged():
    view = TrainingView()
    raw = torch.randn(5, 7)
    draws = view.draw(5, torch.Generator())
    assert draws.shape == (5, 0)
    assert torch.equal(view.train(raw, draws), raw)


def test_a_network_is_trained_on_crops_like_those_that_an_encoder_sees():
    seen = ImageView(24, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    view = in_training(seen)
    assert isinstance(view, RandomCropView)
    assert (view.crop, view.mean, view.std) == (seen.crop, seen.mean, seen.std)
    assert in_training(view) is view
    middle = torch.tensor([[0.5, 0.5, 1.0]]).expand(3, 3)
    raw = images(3)
    np.testing.assert_allclose(view.train(raw, middle), seen.test(raw.numpy()), atol=1e-6)
    assert type(in_training(View())) is TrainingView


@pytest.mark.gpu
def test_views_on_a_gpu_equal_those_on_the_cpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    view = RandomCropView(crop=24)
    raw, draws = images(16), view.draw(16, torch.Generator().manual_seed(1))
    on_gpu = view.train(raw.cuda(), draws)
    assert on_gpu.is_cuda
    torch.testing.assert_close(on_gpu.cpu(), view.train(raw, draws), atol=2e-6, rtol=0)
