"""Options of device, encoder, run and bulk work; this module loads no library that takes long."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from ucds.arguments import require_fields
from ucds.choices import (
    DEFAULT_WEIGHTS,
    GPUS,
    NO_WEIGHTS,
    Accelerator,
    Engine,
    Pooling,
    Precision,
    require_input_size,
    require_weights,
)
from ucds.errors import InputError, brief
from ucds.extras import require_extra
from ucds.training.progress import Quiet, Reporter

if TYPE_CHECKING:
    from ucds.encoders.encoder import Encoder
    from ucds.encoders.graphs import GraphEncoder


def default_cache_dir() -> Path:
    """Return the folder that UCDS_CACHE names, or the user's cache folder of this package."""
    try:
        return Path(os.environ.get("UCDS_CACHE") or platformdirs.user_cache_dir("ucds"))
    except RuntimeError:
        raise InputError("you have no home folder: set UCDS_CACHE to a folder for the cache") from None


def default_images_bytes() -> int | None:
    """Read the bound on decoded images, in GB, from the environment variable UCDS_CACHE_LIMIT."""
    text = os.environ.get("UCDS_CACHE_LIMIT", "")
    try:
        return max(0, int(float(text) * 1e9)) if text else None
    except (ValueError, OverflowError):  # no number, NaN, or infinity
        raise InputError(f"UCDS_CACHE_LIMIT is a number of GB, not {brief(text)}") from None


@dataclass(frozen=True)
class Compute:
    """Device, precision, cache and reporter, for training, prediction and all other work.

    Attributes:
        accelerator: device of PyTorch: ``"cpu"``, ``"cuda"``, ``"mps"`` (the GPU of a Mac), or ``"auto"`` for
            the best that is there. PyTorch computes PCD, modules of your own, and networks by their names if
            a GPU is named; all else is computed on the processor. Equal seeds give equal results on a
            processor; on a GPU the last digits may differ.
        precision: precision of forward passes of PyTorch; the transport has double precision, single on
            ``"mps"``. A GPU or a precision that nothing would use is refused.
        cache: folder of decoded images and frozen features, by default that of the
            environment variable UCDS_CACHE, or the user's cache folder. With ``None``
            frozen features stay in memory, and decoded images are in the user's cache folder.
        reporter: receiver of progress messages; by default, they are dropped.
        images_bytes: largest size of the decoded images in the cache, by default that of the environment
            variable UCDS_CACHE_LIMIT; 8 GiB if ``None``.

    Raises:
        InputError: UCDS_CACHE_LIMIT is no number, or a GPU needs the extra ``torch``.
    """

    accelerator: Accelerator = "auto"
    precision: Precision = "32-true"
    cache: Path | None = field(default_factory=default_cache_dir)
    reporter: Reporter = field(default_factory=Quiet, repr=False)
    images_bytes: int | None = field(default_factory=default_images_bytes)

    if TYPE_CHECKING:  # the fields, but that a text names the cache as well

        def __init__(
            self,
            accelerator: Accelerator = "auto",
            precision: Precision = "32-true",
            cache: str | Path | None = ...,
            reporter: Reporter = ...,
            images_bytes: int | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        require_fields(self)
        if self.accelerator in GPUS:
            require_extra("torch", f'`accelerator="{self.accelerator}"`')
        if self.cache is not None:  # a text names a folder, as it does for every other argument
            object.__setattr__(self, "cache", Path(self.cache))

    def silent(self) -> Compute:
        """Return a copy without messages, which can be sent to another process."""
        return replace(self, reporter=Quiet())

    def place(self, encoder: Encoder, *, elsewhere: bool = False, learns: bool = False) -> Encoder:
        """Return an encoder for the device, which is another machine's if ``elsewhere``.

        What is computed by gradients beside the encoder, if it ``learns``, may use what the encoder does not.

        Raises:
            InputError: there is no such device, it lacks the precision, or nothing would use what was named.
        """
        placed = encoder.on(self.accelerator, self.precision, elsewhere=elsewhere)
        used = self.used_by(placed)
        if used != self and not learns:
            name = "accelerator" if used.accelerator != self.accelerator else "precision"
            useless = f'`{name}="{getattr(self, name)}"`'
            reason = f"{encoder.spec.called} runs on the processor, in single precision"
            raise InputError(f"{useless} has no effect here: {reason}; leave it out")
        return placed

    def used_by(self, placed: Encoder) -> Compute:
        """Return the same without a GPU or a precision that an encoder does not use, once it is placed."""
        by_torch, in_half = placed.computed_by.startswith("torch"), placed.computed_by.endswith("bfloat16")
        return replace(
            self,
            accelerator=self.accelerator if by_torch or self.accelerator not in GPUS else "auto",
            precision=self.precision if in_half else "32-true",
        )


@dataclass(frozen=True)
class EncoderOptions:
    """Encoder for images.

    Attributes:
        backbone: ONNX file, ``hf:OWNER/NAME`` for a repository of the Hugging Face hub, folder with the files
            of one, or name of a network in timm or torchvision; the encoder in the package if ``None``.
        weights: file of weights, for a network by name; ``"default"`` for published ones, ``"none"`` for a
            random start.
        image_size: side of the square crop in pixels; the encoder's own if ``None``.
        output: output of an ONNX graph that holds the features; if ``None``, the only output.
        pooling: rule that makes features of an image from an ONNX graph's features of tokens.

    Raises:
        InputError: there is no such file of weights, size or pooling.
    """

    backbone: str | None = None
    weights: str = DEFAULT_WEIGHTS
    image_size: int | None = None
    output: str | None = None
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        """Refuse a file of weights that is not there, and a size that no encoder takes."""
        require_fields(self)
        require_input_size(self.image_size)
        require_weights(self.weights)

    def find(self, compute: Compute) -> Encoder:
        """Find the encoder; a network by name becomes an ONNX graph, which the cache keeps."""
        graph = self._graph(compute)
        if graph is not None:
            return graph
        require_extra("torch", f"`backbone={self.backbone}`")
        if compute.accelerator in GPUS:
            return self._network()
        from ucds.networks.graph import graph_of

        return graph_of(str(self.backbone), self.weights, self.image_size, compute.cache)

    def network(self, compute: Compute) -> Encoder:
        """Build the network to train; if none is named, the paper's ResNet-18."""
        require_extra("torch", '`tune="full"`')
        if self.backbone is not None and self._graph(compute) is not None:
            raise InputError(
                f'`tune="full"` trains only a network by name, but {self.backbone} is an ONNX graph'
            )
        return self._network()

    def _network(self) -> Encoder:
        from ucds.networks.build import build_network

        return build_network(self.backbone or "resnet18", weights=self.weights, input_size=self.image_size)

    def _graph(self, compute: Compute) -> GraphEncoder | None:
        """Find an encoder that is a graph, and refuse options that only a network by name can use."""
        from ucds.encoders.find import describe_choice, find_graph
        from ucds.encoders.spec import EDGES

        graph = find_graph(
            self.backbone, image_size=self.image_size, output=self.output, pooling=self.pooling
        )
        if graph is None and (self.output or self.pooling):
            raise InputError(f"`output` and `pooling` are for ONNX files, not for {self.backbone}")
        fixed = graph is not None and graph.spec.name == EDGES and self.weights == NO_WEIGHTS
        if graph is not None and self.weights != DEFAULT_WEIGHTS and not fixed:
            raise InputError(
                f"`weights` is for a network by name: {graph.spec.called} is a graph with its weights"
            )
        if graph is not None and graph.spec.output is not None:
            compute.reporter.say(describe_choice(graph))
        return graph


def require_seed(seed: int) -> None:
    """Refuse a seed that no generator takes."""
    if not 0 <= seed < 2**32:
        raise InputError(f"`seed` must be at least 0 and below 2**32, not {seed}")


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that belong neither to the method nor to the data.

    Attributes:
        seed: seed of every random choice; equal seeds give equal models.
        resume: whether to continue the unfinished run in the folder.
        devices: number of processes, one per device, that share every batch. Leave it at 1 if torchrun has
            started the processes, on one machine or several.

    Raises:
        InputError: the seed is negative or too large, there are no devices, or a value is of another kind.
    """

    seed: int = 0
    resume: bool = False
    devices: int = 1

    def __post_init__(self) -> None:
        """Refuse a value that nothing can use."""
        require_fields(self)
        require_seed(self.seed)
        if self.devices < 1:
            raise InputError(f"`devices` must be at least 1, not {self.devices}")


@dataclass(frozen=True)
class BulkOptions:
    """Options of bulk work.

    Attributes:
        engine: ``"plain"`` for a loop in this process; ``"ray"`` for workers of Ray, on the cluster that the
            environment variable ``RAY_ADDRESS`` names, or on this machine.
        workers: number of Ray workers; if ``None``, one per processor, or one per GPU if the accelerator is
            ``"cuda"``.
        shard_size: number of images per part; each part is computed and written by itself.

    Raises:
        InputError: there is no such engine, ``workers`` is given without Ray, or a number is below 1.
    """

    engine: Engine = "plain"
    workers: int | None = None
    shard_size: int = 1024

    def __post_init__(self) -> None:
        """Refuse options that nothing would use, and an engine that does not exist."""
        require_fields(self)
        if self.engine == "plain" and self.workers is not None:
            raise InputError('`workers` is for `engine="ray"`')
        if self.shard_size < 1 or (self.workers is not None and self.workers < 1):
            raise InputError("`shard_size` and `workers` must be at least 1")
