"""Builds networks from the descriptions and weights in model files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load
from torch import nn

from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import FUNCTION, EncoderSpec
from ucds.errors import DamagedFileError, InputError, UserError, one_line
from ucds.networks.build import create
from ucds.networks.encoder import NetworkEncoder


def stored_network(
    spec: EncoderSpec, weights: str, content: bytes, path: Path, given: Encoder | None
) -> Encoder:
    """Make the network of a model file from its weights, the bytes that :meth:`NetworkEncoder.saved` gave.

    A model that was trained with a module that no name can build needs the ``given`` one.
    """
    own = given.module if isinstance(given, NetworkEncoder) else None
    if spec.name == FUNCTION and own is None:
        raise InputError(
            f"the encoder of {path} was a module of your own: make it again, and pass module_encoder(...)"
        )
    try:
        state = load(content)
        if spec.name != FUNCTION and (sketch := _without_memory(spec)) is not None:
            sketch.load_state_dict(state, assign=True)  # the name may be that of a giant
        module = own if spec.name == FUNCTION and own is not None else _rebuild(spec)
        module.load_state_dict(state)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever building a network from an edited description may raise
        raise DamagedFileError(f"{path} does not fit its own description: {one_line(error)}") from None
    return NetworkEncoder(module, spec, weights)


def count_parameters(encoder: Encoder) -> int:
    """Count the parameters of a network, or of a graph's original network; 0 for any other encoder."""
    module = encoder.module if isinstance(encoder, NetworkEncoder) else None
    if module is None and encoder.spec.input_size is not None:
        with suppress(InputError):
            module = _without_memory(encoder.spec)
    return 0 if module is None else sum(weight.numel() for weight in module.parameters())


def _rebuild(spec: EncoderSpec) -> nn.Module:
    """Build the architecture that a model file describes, for its own weights to be loaded into."""
    network = create(spec.name, pretrained=False, input_size=spec.input_size)
    if network.spec.width != spec.width:
        raise InputError(
            f"network '{spec.name}' returns {network.spec.width} features here, but {spec.width} where the "
            "model was trained; install the library version that was used in the training"
        )
    return network.module


def _without_memory(spec: EncoderSpec) -> nn.Module | None:
    """Build an architecture whose weights have shapes but no memory; ``None`` if this is impossible."""
    with torch.device("meta"), suppress(RuntimeError, ValueError, TypeError, NotImplementedError):
        return _rebuild(spec)
    return None
