"""Builds a network by name, with pre-trained weights, weights of a local file, or random ones."""

from __future__ import annotations

import difflib
from pathlib import Path

import torch

from ucds.arguments import checked
from ucds.choices import DEFAULT_WEIGHTS, NO_WEIGHTS, require_input_size, require_weights
from ucds.errors import InputError
from ucds.networks import timm_models, torchvision_models
from ucds.networks.encoder import NetworkEncoder
from ucds.networks.weight_files import load_file


@checked
def build_network(
    name: str, *, weights: str | Path | None = DEFAULT_WEIGHTS, input_size: int | None = None, seed: int = 0
) -> NetworkEncoder:
    """Build a network that maps images to features, without its classifier.

    Args:
        name: a timm model (``"resnet18"``, ``"vit_base_patch16_224.dino"``) or a torchvision one
            (``"torchvision/squeezenet1_1"``); ``"torchvision/resnet50_swav"`` has the weights of SwAV.
        weights: ``"default"`` or ``None`` for pre-trained weights, from the cache or by download;
            ``"none"`` for a random start; else a local ``.safetensors`` file or state dict.
        input_size: side of the square crop in pixels; the model's own if ``None``.
        seed: seed of the random start. PyTorch's global generator is left as it was.

    Raises:
        InputError: the name is unknown, no network takes images of the size, or the weights cannot be found
            or do not fit. Random ones never replace them.
    """
    require_input_size(input_size)
    choice = DEFAULT_WEIGHTS if weights is None else str(weights)
    require_weights(choice)
    network = create(name, pretrained=choice == DEFAULT_WEIGHTS, input_size=input_size, seed=seed)
    if choice not in (DEFAULT_WEIGHTS, NO_WEIGHTS):
        network.weights = load_file(network.module, Path(choice), name, timm_models.adapt)
    return network


def create(name: str, *, pretrained: bool, input_size: int | None, seed: int = 0) -> NetworkEncoder:
    """Build the named architecture, with published or random weights, see :func:`build_network`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name in torchvision_models.names():
            return torchvision_models.create(name, pretrained=pretrained, input_size=input_size)
        if name in timm_models.names():
            return timm_models.create(name, pretrained=pretrained, input_size=input_size)
    raise InputError(f"no encoder is named '{name}'; {_suggestion(name)}")


def _suggestion(name: str) -> str:
    prefix, slash, plain = name.lower().rpartition("/")
    own, others = torchvision_models.names(), timm_models.names()
    # What the prefix says counts first, but a torchvision name without its prefix is a likely slip.
    known = own if f"{prefix}{slash}" == torchvision_models.PREFIX else [*others, *own]
    by_plain_name = {candidate.rpartition("/")[2].lower(): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(plain, by_plain_name, n=4)
    if not close:
        return "names are timm's ('resnet18'), torchvision's ('torchvision/resnet18')"
    return "did you mean " + ", ".join(by_plain_name[match] for match in close) + "?"
