"""Views of samples for training a network: random crops of images, and unchanged vectors.

Random numbers are drawn on the CPU, apart from their application: several processes draw the same
parameters for a pooled batch and apply only their own rows of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ucds.data.dataset import ImageView, View


class TrainingView(View):
    """View that varies at random in training; this base class returns vectors unchanged."""

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the random parameters of n training views: ``(n, p)`` on the CPU, one row per sample."""
        return torch.empty(n, 0)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Make training views ``(b, *input_shape)`` float32 on ``raw``'s device; row i uses ``draws[i]``."""
        return raw.float()


class RandomCropView(ImageView, TrainingView):
    """Random crop and horizontal flip in training, centre crop in testing; both normalised."""

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``(n, 3)`` numbers in [0, 1): the crop's vertical and horizontal place, and the flip."""
        return torch.rand(n, 3, generator=generator)

    def train(self, raw: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip each of ``(b, 3, S, S)`` uint8 images its own way, and normalise.

        Place u of a crop becomes offset ``floor(u * (S - crop + 1))``; an image is flipped below one half.
        """
        self.check(raw.shape)
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
        scale, shift = (torch.from_numpy(each).to(raw.device) for each in self.affine)
        return crops.to(torch.float32, copy=True).mul_(scale).add_(shift)


def in_training(view: View) -> TrainingView:
    """Return the training view that corresponds to an encoder's view."""
    if isinstance(view, TrainingView):
        return view
    return RandomCropView(view.crop, view.mean, view.std) if isinstance(view, ImageView) else TrainingView()
