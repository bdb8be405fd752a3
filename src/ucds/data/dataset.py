"""A data set as a model takes it: samples, and views of them, random in training, the same in testing.

Random numbers are drawn on the CPU, apart from their application: several processes draw the same
parameters for a pooled batch and apply only their own rows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ucds.data.samples import Samples

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class View:
    """Turns raw samples into model inputs; this one passes vectors on, in training and in testing alike."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one model input, without the batch; -1 where any length will do."""
        return (-1,)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the random parameters of n training views: ``(n, p)`` on the CPU, one row per sample."""
        return torch.empty(n, 0)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Make training views ``(b, *input_shape)`` float32 on ``raw``'s device; row i uses ``draws[i]``."""
        return raw.float()

    def test(self, raw: Tensor) -> Tensor:
        """Make test views ``(b, *input_shape)`` float32 on ``raw``'s device, without randomness."""
        return raw.float()


@dataclass(frozen=True)
class Dataset:
    """Unlabelled samples of one or several domains, with the view that makes inputs of the model of them."""

    samples: Samples
    view: View = field(default_factory=View)


class ImageView(View):
    """Random crop and horizontal flip in training, centre crop in testing; both normalised.

    Args:
        crop: side of the crop in pixels, at most the side of the raw images.
        mean: mean of each colour, of pixel values between 0 and 1; ImageNet's by default.
        std: standard deviation of each colour, likewise.
    """

    def __init__(
        self, crop: int = 224, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
    ) -> None:
        self.crop, self.mean, self.std = crop, tuple(mean), tuple(std)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of a view: ``(3, crop, crop)``."""
        return 3, self.crop, self.crop

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``(n, 3)`` numbers in [0, 1): the crop's vertical and horizontal place, and the flip."""
        return torch.rand(n, 3, generator=generator)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip each of ``(b, 3, S, S)`` uint8 images its own way, and normalise.

        Place u of a crop becomes offset ``floor(u * (S - crop + 1))``; an image is flipped below one half.

        Raises:
            ValueError: the images are smaller than the crop, or there is not one row of draws per image.
        """
        self._check(raw)
        if len(draws) != len(raw):
            raise ValueError(f"{len(raw)} images need as many rows of draws, not {len(draws)}")
        draws = draws.cpu()
        room = torch.tensor([side - self.crop for side in raw.shape[2:]])
        offsets = (draws[:, :2].double() * (room + 1)).long().to(raw.device)
        flipped = torch.nonzero(draws[:, 2] < 0.5).squeeze(1).to(raw.device)
        # Every crop of every image as one strided view, of which indexing copies the chosen ones.
        windows = raw.unfold(2, self.crop, 1).unfold(3, self.crop, 1)
        crops = windows[torch.arange(len(raw), device=raw.device), :, offsets[:, 0], offsets[:, 1]]
        crops[flipped] = crops[flipped].flip(-1)
        return self._normalise(crops)

    def test(self, raw: Tensor) -> Tensor:
        """Cut out the centre ``(b, 3, crop, crop)`` of ``(b, 3, S, S)`` uint8 images, and normalise.

        Raises:
            ValueError: the images are smaller than the crop.
        """
        self._check(raw)
        top, left = ((side - self.crop) // 2 for side in raw.shape[2:])
        return self._normalise(raw[..., top : top + self.crop, left : left + self.crop])

    def _check(self, raw: Tensor) -> None:
        if raw.ndim != 4 or raw.shape[1] != 3 or min(raw.shape[2:]) < self.crop:
            raise ValueError(f"images of shape {tuple(raw.shape)} cannot be cropped to {self.input_shape}")

    def _normalise(self, images: Tensor) -> Tensor:
        scales = [1 / (255 * s) for s in self.std]
        shifts = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        scale, shift = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (scales, shifts))
        return images.to(torch.float32, copy=True).mul_(scale).add_(shift)
