"""CutMix of images and mix-up of vectors (Sec. 2.2.3): a mixed batch, and how its targets are mixed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """A mixed batch, with the pairs and the ratio by which its targets are mixed."""

    inputs: Tensor  # mixed samples, in the shape of the batch they came from
    partner: Tensor  # (n,) position of the sample that each one was mixed with
    ratio: float  # share of the original sample in the mixture, the paper's lambda

    def mix_targets(self, targets: Tensor) -> Tensor:
        """Mix ``(n, K)`` predictions as the samples were mixed; no gradient flows through the result."""
        targets = targets.detach()
        return self.ratio * targets + (1.0 - self.ratio) * targets[self.partner]


def mix(inputs: Tensor, alpha: float, rng: np.random.Generator) -> Mixture:
    """Mix a pooled batch: images ``(n, c, h, w)`` by CutMix, vectors ``(n, d)`` by mix-up.

    One ratio ``lambda ~ Beta(alpha, alpha)``, and for images one box, serve the whole batch. Pairs are formed
    by a permutation of the pooled batch, so that samples of different domains meet.

    Source:
        S. Yun et al., CutMix, 2019; H. Zhang et al., mixup, 2018.
    """
    if alpha <= 0:
        raise ValueError(f"the concentration of the mixing ratio must be positive, not {alpha}")
    if inputs.ndim not in (2, 4):
        raise ValueError(f"can mix images (n, c, h, w) or vectors (n, d), not shape {tuple(inputs.shape)}")
    ratio = float(rng.beta(alpha, alpha))
    partner = torch.from_numpy(rng.permutation(len(inputs))).to(inputs.device)
    if inputs.ndim == 2:
        return Mixture(torch.lerp(inputs[partner], inputs, ratio), partner, ratio)
    return _cutmix(inputs, partner, ratio, rng)


def _cutmix(images: Tensor, partner: Tensor, ratio: float, rng: np.random.Generator) -> Mixture:
    height, width = images.shape[-2:]
    top, bottom = _side(height, ratio, rng)
    left, right = _side(width, ratio, rng)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images[partner, :, top:bottom, left:right]
    # The border may have cut the box, so the ratio is taken from the area that was really pasted.
    pasted = (bottom - top) * (right - left) / (height * width)
    return Mixture(mixed, partner, 1.0 - pasted)


def _side(length: int, ratio: float, rng: np.random.Generator) -> tuple[int, int]:
    half = int(length * math.sqrt(1.0 - ratio)) // 2
    centre = int(rng.integers(length))
    return max(centre - half, 0), min(centre + half, length)
