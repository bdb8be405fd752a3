"""Networks of model files: described there, with their weights, and built when they are first asked for."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import FUNCTION, EncoderSpec
from ucds.errors import DamagedFileError, InputError, UserError, one_line
from ucds.networks.build import create
from ucds.networks.encoder import NetworkEncoder, StateDict


class StoredNetwork(NetworkEncoder):
    """A network of a file, whose module is built when it is first asked for.

    The libraries of networks take two seconds to load. What needs the weights alone, such as a prediction
    from features that are in the cache, does not wait for them. Errors name the file, ``path``.

    Raises:
        InputError: when the module is asked for: the architecture is unknown here, or comes out with another
            width than described.
        DamagedFileError: the weights do not fit the architecture, when the module is asked for.
    """

    def __init__(self, spec: EncoderSpec, weights: str, state: StateDict, path: Path) -> None:
        self.spec, self.weights, self._state, self._path = spec, weights, state, path
        self.device, self.autocast = torch.device("cpu"), False

    @cached_property
    def module(self) -> nn.Module:  # type: ignore[override]
        """Network with its weights."""
        try:
            if (sketch := _without_memory(self.spec)) is not None:  # the name may be that of a giant
                sketch.load_state_dict(self._state, assign=True)
            module = _rebuild(self.spec)
            module.load_state_dict(self._state)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # whatever building a network from an edited description may raise
            raise DamagedFileError(
                f"{self._path} does not fit its own description: {one_line(error)}"
            ) from None
        return module

    def state(self) -> StateDict:
        """Return the weights by name."""
        return self._state


def stored_network(
    spec: EncoderSpec, weights: str, content: bytes, path: Path, given: Encoder | None
) -> Encoder:
    """Make the network of a model file.

    Args:
        spec: description of the network.
        weights: origin of the weights that it started from.
        content: bytes that :meth:`NetworkEncoder.saved` gave.
        path: model file, for messages.
        given: encoder of the caller's own, if the model was trained with a module that no name can build.

    Raises:
        InputError: the module was the caller's own, and is not given.
        DamagedFileError: the weights cannot be read, or do not fit the module.
    """
    try:
        state = load(content)
        if spec.name != FUNCTION:
            return StoredNetwork(spec, weights, state, path)
        if not isinstance(given, NetworkEncoder):
            raise InputError(
                f"the encoder of {path} was a module of your own: make it again, and pass module_encoder(...)"
            )
        given.module.load_state_dict(state)
    except (SafetensorError, RuntimeError) as error:
        raise DamagedFileError(f"{path} does not fit its own description: {one_line(error)}") from None
    return NetworkEncoder(given.module, spec, weights)


def count_parameters(encoder: Encoder) -> int:
    """Count the parameters of a network, or of the one that a graph was made of; 0 of any other encoder."""
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
            "model was trained; install the version of its library that was used there"
        )
    return network.module


def _without_memory(spec: EncoderSpec) -> nn.Module | None:
    """Build an architecture whose weights have shapes and no memory; ``None`` where it cannot be built so."""
    with torch.device("meta"), suppress(RuntimeError, ValueError, TypeError, NotImplementedError):
        return _rebuild(spec)
    return None
