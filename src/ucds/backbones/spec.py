"""What a backbone is: a module, a description that rebuilds it, and the origin of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ucds.errors import InputError

IDENTITY = "identity"
MODULE = "module"

ChannelTriple = tuple[float, float, float]

IMAGENET_MEAN: ChannelTriple = (0.485, 0.456, 0.406)
IMAGENET_STD: ChannelTriple = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class BackboneSpec:
    """Describes an architecture well enough to build it again without its weights.

    Attributes:
        name: The name ``build_backbone`` takes, or ``"identity"`` or ``"module"``.
        width: Number of features per sample.
        input_size: Side of the square crop in pixels; ``None`` when inputs are not images.
        mean: Mean of each channel, of pixels in 0..1, that the weights expect; ``None`` for vectors.
        std: Standard deviation of each channel, likewise.
    """

    name: str
    width: int
    input_size: int | None = None
    mean: ChannelTriple | None = None
    std: ChannelTriple | None = None

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InputError(f"a backbone returns at least 1 feature, not {self.width}")
        if self.input_size is not None and self.input_size < 1:
            raise InputError(f"a backbone's input size is a number of pixels, not {self.input_size}")


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that maps inputs to features.

    Attributes:
        module: Maps a batch of inputs to ``(n, width)`` floating-point features.
        spec: How to build the same architecture again.
        weights: What was loaded, for logs and records: ``"hub: ..."``, ``"file: ..."`` with the start of
            its SHA-256, ``"none (random)"``, ``"none (identity)"`` or ``"given"``.
    """

    module: nn.Module
    spec: BackboneSpec
    weights: str


class Network(NamedTuple):
    """What a model library hands over: a network without its classifier, and the inputs it expects."""

    module: nn.Module
    input_size: int
    mean: ChannelTriple
    std: ChannelTriple
    origin: str


def identity_backbone(width: int) -> Backbone:
    """A backbone for inputs that are features already: ``(n, width)`` in, the same out."""
    return Backbone(nn.Identity(), BackboneSpec(IDENTITY, width), "none (identity)")


def module_backbone(
    module: nn.Module,
    width: int | None = None,
    *,
    example: Tensor | None = None,
    input_size: int | None = None,
    mean: ChannelTriple | None = None,
    std: ChannelTriple | None = None,
) -> Backbone:
    """Uses any module that maps a batch of inputs to ``(n, width)`` features.

    Args:
        module: The network, with whatever weights it holds.
        width: Number of features it returns; found by a dry run on ``example`` if ``None``.
        example: A batch of at least one input, in the form the module takes.
        input_size: Side of the crop in pixels, if inputs are images.
        mean: Mean of each channel the module expects, if inputs are images.
        std: Standard deviation of each channel, likewise.

    Raises:
        InputError: If neither width nor example is given, if they disagree, or if the module does not
            return one row of floating-point features per input.
    """
    if example is not None:
        found = feature_width(module, example, type(module).__name__)
        if width is not None and width != found:
            raise InputError(f"the module returns {found} features, not the {width} that were announced")
        width = found
    if width is None:
        raise InputError("give the width of the module's features, or an example batch to find it with")
    return Backbone(module, BackboneSpec(MODULE, width, input_size, mean, std), "given")


def channels_last(module: nn.Module) -> nn.Module:
    """Lays the weights of convolutions out as their fast kernels want them, in place; values stay.

    What a convolution returns then has the same layout, so that inputs need not. On a CPU a training step
    takes about four fifths of its time so (``benchmarks/memory_format.md``).
    """
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.contiguous(memory_format=torch.channels_last)
    return module


@torch.no_grad()
def feature_width(module: nn.Module, example: Tensor, name: str) -> int:
    """Runs a module once, in evaluation mode, to find how many features it returns.

    The mode of every submodule is restored, and running statistics stay as they are.

    Args:
        module: The network.
        example: A batch of inputs ``(n, ...)``.
        name: What to call the network in an error.

    Raises:
        InputError: If the module cannot take the example, or its output is not ``(n, width)`` floats.
    """
    training = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        features = module(example)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        shape = "x".join(str(size) for size in example.shape)
        raise InputError(
            f"backbone '{name}' cannot take inputs of shape {shape}: {one_line(error)}"
        ) from error
    finally:
        for child, mode in training:
            child.training = mode
    if not isinstance(features, Tensor) or not features.is_floating_point():
        kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"backbone '{name}' must return a floating-point tensor, not {kind}")
    if features.ndim != 2 or len(features) != len(example):
        raise InputError(
            f"backbone '{name}' must return one row of features per input, (n, width), "
            f"but returned shape {tuple(features.shape)} for {len(example)} inputs"
        )
    return features.shape[1]


def one_line(error: BaseException, limit: int = 200) -> str:
    """The start of an error's message, on one line, to be quoted in another message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
