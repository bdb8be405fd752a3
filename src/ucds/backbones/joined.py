"""Several backbones as one, named ``"a,b"``: their features, each scaled to unit length, stand side by side.

The method ``consensus`` clusters with each of them, and lets the clusterings vote together
(``ucds.math.joint_vote``). To every other method they are one encoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ucds.backbones.spec import Network
from ucds.errors import InputError

SEPARATOR = ","


class JoinedEncoders(nn.Module):
    """Encoders that look at the same images, each in its own size and normalisation.

    Images come as the first encoder expects them, in the largest of all sizes.

    Args:
        networks: encoders, at least one.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(network.module for network in networks)
        self._sizes = [network.input_size for network in networks]
        means = torch.tensor([network.mean for network in networks]).view(-1, 1, 3, 1, 1)
        stds = torch.tensor([network.std for network in networks]).view(-1, 1, 3, 1, 1)
        # (x * std_1 + mean_1 - mean_i) / std_i, for each encoder i.
        self.register_buffer("scales", stds[0] / stds)
        self.register_buffer("shifts", (means[0] - means) / stds)
        self.scales: Tensor
        self.shifts: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """Turn images ``(n, 3, h, w)`` into features ``(n, width)``, those of each encoder of unit length."""
        found = []
        for encoder, size, scale, shift in zip(
            self.encoders, self._sizes, self.scales, self.shifts, strict=True
        ):
            seen = images * scale + shift
            if images.shape[-2:] != (size, size):
                seen = functional.interpolate(seen, (size, size), mode="bilinear", antialias=True)
            found.append(functional.normalize(encoder(seen), dim=-1))
        return torch.cat(found, dim=-1)


def split_names(name: str) -> list[str]:
    """Split the name of joined backbones into theirs; a name without a comma is returned alone.

    Raises:
        InputError: a name is empty or comes twice.
    """
    if SEPARATOR not in name:
        return [name]
    names = [one.strip() for one in name.split(SEPARATOR)]
    if "" in names:
        raise InputError(f"--backbone {name!r} has a comma without a name beside it")
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise InputError(f"--backbone {name!r} names {twice!r} twice: join different encoders")
    return names


def split_weights(weights: str, names: Sequence[str], shared: Sequence[str]) -> list[str]:
    """Return the weights of each of several backbones.

    Args:
        weights: weights of each, separated by commas, or one word for all.
        names: names of the backbones.
        shared: words that may stand for all backbones.

    Raises:
        InputError: there are more or fewer weights than backbones.
    """
    if weights in shared:
        return [weights] * len(names)
    given = [one.strip() for one in weights.split(SEPARATOR)]
    if len(given) != len(names):
        raise InputError(
            f"--weights has {len(given)} and --backbone {len(names)} entries: give one file for each "
            f"encoder, separated by commas, or {' or '.join(map(repr, shared))} for all"
        )
    return given


def sizes_of(own: Sequence[int], largest: int | None) -> list[int]:
    """Return the size of the images that each of several encoders sees, in pixels.

    Encoders of the largest size take the one that is asked for, the others at most their own. So the sizes
    follow from the names and the largest size alone.

    Args:
        own: size of each encoder's own images.
        largest: size that is asked for; the encoders' own if ``None``.
    """
    if largest is None:
        return list(own)
    return [largest if one == max(own) else min(one, largest) for one in own]
