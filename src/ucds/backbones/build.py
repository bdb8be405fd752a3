"""Build a backbone by its name, with pre-trained weights, weights of a local file, or none on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ucds.backbones import hub_models, oriented_edges, timm_models, torchvision_models
from ucds.backbones.checkpoint_files import load_file, require_file
from ucds.backbones.joined import SEPARATOR, JoinedEncoders, sizes_of, split_names, split_weights
from ucds.backbones.spec import (
    IDENTITY,
    MODULE,
    Backbone,
    BackboneSpec,
    Network,
    channels_last,
    feature_width,
    identity_backbone,
)
from ucds.errors import InputError

DEFAULT_WEIGHTS = "default"
NO_WEIGHTS = "none"


def build_backbone(
    name: str, *, weights: str | Path | None = DEFAULT_WEIGHTS, input_size: int | None = None, seed: int = 0
) -> Backbone:
    """Build a network that maps images to features, without its classifier.

    Args:
        name: a timm model (``"resnet18"``, ``"vit_base_patch16_224.dino"``), a torchvision one
            (``"torchvision/squeezenet1_1"``) or one of PyTorch's hub
            (``"hub/facebookresearch/swav:resnet50"``); or several of these, separated by commas, which are
            joined (:mod:`ucds.backbones.joined`).
        weights: ``"default"`` or ``None`` for pre-trained weights, from the cache or by download;
            ``"none"`` for a random start; else a local ``.safetensors`` file or state dict. For several
            models one entry for each, separated by commas, or one of the two words for all.
        input_size: side of the square crop in pixels; the model's own if ``None``. Of several models those
            with the largest images take it, the others at most their own.
        seed: seed of the random start. PyTorch's global generator is left as it was.

    Raises:
        InputError: a name is unknown or comes twice, or the weights cannot be had or do not fit. A random
            start is never made in their place.
    """
    names, choice = split_names(name), DEFAULT_WEIGHTS if weights is None else str(weights)
    choices = split_weights(choice, names, (DEFAULT_WEIGHTS, NO_WEIGHTS)) if len(names) > 1 else [choice]
    for file in choices:
        if file not in (DEFAULT_WEIGHTS, NO_WEIGHTS):
            require_file(Path(file))
    create = [
        partial(_create_with_weights, *of_one, seed=seed) for of_one in zip(names, choices, strict=True)
    ]
    return _finish(names, _create_each(create, input_size))


def rebuild_backbone(spec: BackboneSpec, *, seed: int = 0) -> Backbone:
    """Build the architecture that a checkpoint describes, for its own weights to be loaded into.

    Neither weights nor code are downloaded.

    Args:
        spec: stored description of the backbone.
        seed: seed of the random start.

    Raises:
        InputError: the architecture was a module of the user's own, is unknown here, or comes out
            with another width than described.
    """
    if spec.name == IDENTITY:
        return identity_backbone(spec.width)
    if spec.name == MODULE:
        raise InputError(
            "the backbone was a module of your own, which no name can rebuild; "
            "make it again and pass module_backbone(...)"
        )
    names = split_names(spec.name)
    create = [partial(_create, one, pretrained=False, seed=seed, download=False) for one in names]
    backbone = _finish(names, _create_each(create, spec.input_size))
    if backbone.spec.width != spec.width:
        raise InputError(
            f"backbone '{spec.name}' returns {backbone.spec.width} features here, but {spec.width} where the "
            "checkpoint was made; install the version of its library that was used there"
        )
    return replace(backbone, spec=spec)


def _create_each(create: Sequence[Callable[..., Network]], input_size: int | None) -> list[Network]:
    """Create one network or several in sizes that suit each other, see :func:`sizes_of`.

    Args:
        create: function for each network, which takes ``input_size``, ``None`` for the network's own.
        input_size: size that is asked for; the networks' own if ``None``.
    """
    if len(create) == 1:
        return [create[0](input_size=input_size)]
    own = [of_one(input_size=None) for of_one in create]
    sizes = sizes_of([network.input_size for network in own], input_size)
    return [
        network if network.input_size == size else of_one(input_size=size)
        for of_one, network, size in zip(create, own, sizes, strict=True)
    ]


def _create_with_weights(name: str, weights: str, *, input_size: int | None, seed: int) -> Network:
    network = _create(name, pretrained=weights == DEFAULT_WEIGHTS, input_size=input_size, seed=seed)
    if weights in (DEFAULT_WEIGHTS, NO_WEIGHTS):
        return network
    origin = load_file(network.module, Path(weights), name, partial(timm_models.adapt, network.module))
    return network._replace(origin=origin)


def _create(
    name: str, *, pretrained: bool, input_size: int | None, seed: int, download: bool = True
) -> Network:
    if name in (IDENTITY, MODULE):
        raise InputError(f"'{name}' is no name to build from: use {name}_backbone(...)")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == oriented_edges.NAME:
            return oriented_edges.create(input_size=input_size)
        if name.startswith(hub_models.PREFIX):
            return hub_models.create(name, pretrained=pretrained, input_size=input_size, download=download)
        if name in torchvision_models.names():
            return torchvision_models.create(name, pretrained=pretrained, input_size=input_size)
        if timm_models.is_known(name):
            return timm_models.create(name, pretrained=pretrained, input_size=input_size)
    raise InputError(f"no backbone is named '{name}'; {_suggestion(name)}")


def _finish(names: Sequence[str], networks: Sequence[Network]) -> Backbone:
    """Describe one network, or join several."""
    widths = tuple(_width_of(*of_one) for of_one in zip(names, networks, strict=True))
    first, size = networks[0], max(network.input_size for network in networks)
    spec = BackboneSpec(SEPARATOR.join(names), sum(widths), size, first.mean, first.std)
    if len(networks) == 1:
        return Backbone(first.module, spec, first.origin)
    origin = "; ".join(network.origin for network in networks)
    return Backbone(JoinedEncoders(networks), spec, origin, widths)


def _width_of(name: str, network: Network) -> int:
    example = torch.zeros(1, 3, network.input_size, network.input_size)
    return feature_width(channels_last(network.module), example, name)


def _suggestion(name: str) -> str:
    prefix, slash, plain = name.lower().rpartition("/")
    own, others = torchvision_models.names(), timm_models.names()
    # What the prefix says counts first, but a torchvision name without its prefix is a likely slip.
    known = own if f"{prefix}{slash}" == torchvision_models.PREFIX else [*others, *own]
    by_plain_name = {candidate.rpartition("/")[2].lower(): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(plain, by_plain_name, n=4)
    if not close:
        return "names are timm's ('resnet18'), torchvision's ('torchvision/resnet18') or hub/OWNER/REPO:ENTRY"
    return "did you mean " + ", ".join(by_plain_name[match] for match in close) + "?"
