"""Networks as encoders: a module of PyTorch, its description, and the origin of its weights."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from ucds.arguments import checked
from ucds.choices import Accelerator, Precision
from ucds.encoders.encoder import Encoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import FUNCTION, IDENTITY, ChannelTriple, EncoderSpec
from ucds.errors import InputError, one_line
from ucds.math.arrays import FloatArray
from ucds.networks.devices import choose_device

StateDict = dict[str, Tensor]


class NetworkEncoder(Encoder):
    """An encoder that PyTorch computes, because it is trained, runs on a GPU, or cannot become a graph.

    Args:
        module: maps a batch of inputs to ``(n, width)`` floating-point features.
        spec: description of the network.
        weights: origin of the weights.
        device: device on which the encoder computes.
        autocast: whether the encoder computes in bfloat16 where that is enough.
    """

    @checked
    def __init__(
        self,
        module: nn.Module,
        spec: EncoderSpec,
        weights: str,
        device: torch.device | str = "cpu",
        autocast: bool = False,
    ) -> None:
        self.module, self.spec, self.weights = module, spec, weights
        self.device, self.autocast = torch.device(device), autocast

    @property
    def computed_by(self) -> str:  # type: ignore[override]
        """Device and precision of PyTorch."""
        return f"torch on {self.device.type}{' in bfloat16' if self.autocast else ''}"

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the weights; empty for the caller's own module of unknown architecture."""
        return "" if self.spec.name == FUNCTION else tensors_digest(self.state())

    def state(self) -> StateDict:
        """Return the weights by name."""
        return self.module.state_dict()

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the weights, as the bytes of a safetensors file."""
        weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.state().items()}
        return {"network": np.frombuffer(save(weights), np.uint8)}

    def as_graph(self) -> GraphEncoder:
        """Write the network as a graph, and compare the graph's features with the network's."""
        from ucds.networks.onnx_files import make_graph  # which knows this class

        if self.spec.input_size is None:
            return super().as_graph()
        return GraphEncoder(make_graph(self), self.spec, self.weights)

    def on(
        self, accelerator: Accelerator, precision: Precision, *, elsewhere: bool = False
    ) -> NetworkEncoder:
        """Return the encoder for a device, which this machine must have unless it is ``elsewhere``."""
        placed = copy.copy(self)
        remote = elsewhere and accelerator == "cuda"  # this machine may have none
        placed.device = torch.device("cuda") if remote else choose_device(accelerator, precision)
        placed.autocast = placed.device.type == "cuda" and precision == "bf16-mixed"
        return placed

    def compute(self, inputs: FloatArray) -> NDArray[Any]:
        """Compute features in evaluation mode."""
        module = self.module.to(self.device)
        enabled = torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast)
        with evaluation_mode(module), enabled:
            features: NDArray[Any] = module(torch.from_numpy(inputs).to(self.device)).float().cpu().numpy()
        return features


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch a network to evaluation without gradients, and afterwards each layer back to its former mode."""
    training = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, mode in training:
            layer.training = mode


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Compute a hexadecimal digest of tensors, such as weights, with their names, shapes and types."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(array.shape)} {array.dtype}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def identity_network(width: int) -> NetworkEncoder:
    """Make the network for inputs that already are features: it returns ``(n, width)`` unchanged."""
    return NetworkEncoder(nn.Identity(), EncoderSpec(IDENTITY, width), "none (identity)")


def image_network(
    name: str, module: nn.Module, input_size: int, mean: ChannelTriple, std: ChannelTriple, weights: str
) -> NetworkEncoder:
    """Describe a network of images without its classifier, and find its width by a run."""
    width = _feature_width(channels_last(module), torch.zeros(1, 3, input_size, input_size), name)
    return NetworkEncoder(module, EncoderSpec(name, width, input_size, mean, std), weights)


@checked
def module_encoder(
    module: nn.Module,
    width: int | None = None,
    *,
    example: Tensor | None = None,
    input_size: int | None = None,
    mean: ChannelTriple | None = None,
    std: ChannelTriple | None = None,
) -> NetworkEncoder:
    """Make an encoder of any module that maps a batch of inputs to ``(n, width)`` features.

    Args:
        module: network with any weights.
        width: number of features that the module returns; found by a run on ``example`` if ``None``.
        example: batch of at least one input, in the form that the module takes.
        input_size: side of the square crop in pixels, if inputs are images.
        mean: mean of each channel that the module expects, if inputs are images; ImageNet's if ``None``.
        std: standard deviation of each channel, likewise.

    Raises:
        InputError: neither width nor example is given, they disagree, or the module does not
            return one row of floating-point features per input.
    """
    if example is not None:
        found = _feature_width(module, example, type(module).__name__)
        if width is not None and width != found:
            raise InputError(f"the module returns {found} features, not {width} as given by `width`")
        width = found
    if width is None:
        raise InputError("give the width of the module's features, or an example batch to find it with")
    return NetworkEncoder(module, EncoderSpec(FUNCTION, width, input_size, mean, std), "given")


def channels_last(module: nn.Module) -> nn.Module:
    """Put the weights of convolutions into the memory layout of fast kernels, in place; values stay.

    The results of convolutions then have the same layout, so inputs need not. A training step on a CPU takes
    less time.
    """
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.contiguous(memory_format=torch.channels_last)
    return module


def _feature_width(module: nn.Module, example: Tensor, name: str) -> int:
    """Run a module once, in evaluation mode, and return the number of its features."""
    try:
        with evaluation_mode(module):
            features = module(example)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        shape = "x".join(str(size) for size in example.shape)
        reason = f"network '{name}' cannot take inputs of shape {shape}: {one_line(error)}"
        raise InputError(reason) from error
    if not isinstance(features, Tensor) or not features.is_floating_point():
        kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"network '{name}' must return a floating-point tensor, not {kind}")
    if features.ndim != 2 or len(features) != len(example):
        raise InputError(
            f"network '{name}' must return one row of features per input, (n, width), "
            f"but returned shape {tuple(features.shape)} for {len(example)} inputs"
        )
    return features.shape[1]
