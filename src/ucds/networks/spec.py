"""Networks that map inputs to features: a module, its description, and the origin of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from safetensors.torch import save
from torch import Tensor, nn

from ucds.encoders.spec import FUNCTION, IDENTITY, LENGTHS, ChannelTriple, EncoderSpec
from ucds.errors import InputError, one_line

StateDict = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network that maps inputs to features.

    Attributes:
        module: maps a batch of inputs to ``(n, width)`` floating-point features.
        spec: description of the architecture.
        weights: origin of the weights, for logs and records: ``"hub: ..."``, ``"file: ..."`` with the start
            of its SHA-256, ``"none (random)"``, ``"none (identity)"`` or ``"given"``.
    """

    module: nn.Module
    spec: EncoderSpec
    weights: str

    def state(self) -> StateDict:
        """Return the weights by name."""
        return self.module.state_dict()

    def saved(self) -> bytes:
        """Return the weights as the content of a safetensors file."""
        return save(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.state().items()}
        )

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the weights; equal weights give equal digests."""
        return tensors_digest(self.state())


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Compute a hexadecimal digest of tensors, such as weights, with their names, shapes and types."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(array.shape)} {array.dtype}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def identity_backbone(width: int, columns: tuple[str, ...] | None = None) -> Backbone:
    """Make a backbone for inputs that are features already: ``(n, width)`` in, the same out."""
    return Backbone(nn.Identity(), EncoderSpec(IDENTITY, width, columns=columns), "none (identity)")


class Viewpoint(nn.Module):
    """Sees ``(n, d)`` vectors from a point outside their plane: as ``(n, d + 1)`` unit vectors.

    From there, vectors of equal direction and different length lie in different directions. Far ones, of
    which a table may have a few, come close to each other. The point is subtracted in double precision: far
    from zero, single precision loses the differences of vectors.
    """

    point: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("point", torch.zeros(width, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the directions of vectors from the point, in single precision."""
        apart = nn.functional.pad(inputs.double(), (0, 1)) - self.point
        return nn.functional.normalize(apart, dim=1, eps=1e-150).float()


VECTOR_MODULES: Mapping[str, Callable[[int], nn.Module]] = {IDENTITY: nn.Identity, LENGTHS: Viewpoint}
"""Modules for vectors of the user's own, by the name of the backbone; they are made from its width."""


def image_backbone(
    name: str, module: nn.Module, input_size: int, mean: ChannelTriple, std: ChannelTriple, weights: str
) -> Backbone:
    """Make a backbone of a network of images without its classifier, whose width is found by a run."""
    width = _feature_width(channels_last(module), torch.zeros(1, 3, input_size, input_size), name)
    return Backbone(module, EncoderSpec(name, width, input_size, mean, std), weights)


def module_backbone(
    module: nn.Module,
    width: int | None = None,
    *,
    example: Tensor | None = None,
    input_size: int | None = None,
    mean: ChannelTriple | None = None,
    std: ChannelTriple | None = None,
) -> Backbone:
    """Make a backbone of any module that maps a batch of inputs to ``(n, width)`` features.

    Args:
        module: network, with whatever weights it holds.
        width: number of features that it returns; found by a run on ``example`` if ``None``.
        example: batch of at least one input, in the form that the module takes.
        input_size: side of the crop in pixels, if inputs are images.
        mean: mean of each channel that the module expects, if inputs are images; ImageNet's if ``None``.
        std: standard deviation of each channel, likewise.

    Raises:
        InputError: neither width nor example is given, they disagree, or the module does not
            return one row of floating-point features per input.
    """
    if example is not None:
        found = _feature_width(module, example, type(module).__name__)
        if width is not None and width != found:
            raise InputError(f"the module returns {found} features, not the {width} that were announced")
        width = found
    if width is None:
        raise InputError("give the width of the module's features, or an example batch to find it with")
    return Backbone(module, EncoderSpec(FUNCTION, width, input_size, mean, std), "given")


def channels_last(module: nn.Module) -> nn.Module:
    """Bring the weights of convolutions into the memory layout of their fast kernels, in place; values stay.

    What a convolution returns then has the same layout, so that inputs need not. A training step on a CPU
    takes less time so.
    """
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.contiguous(memory_format=torch.channels_last)
    return module


@torch.no_grad()
def _feature_width(module: nn.Module, example: Tensor, name: str) -> int:
    """Run a module once, in evaluation mode, and return the number of its features; it stays as it is."""
    training = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        features = module(example)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        shape = "x".join(str(size) for size in example.shape)
        reason = f"backbone '{name}' cannot take inputs of shape {shape}: {one_line(error)}"
        raise InputError(reason) from error
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
