"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ucds.choices import Accelerator, Method, Precision, Role, Tune

if TYPE_CHECKING:
    from ucds.config import MethodSettings
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.training.inputs import CacheOptions, EncoderOptions
    from ucds.training.progress import Reporter
    from ucds.training.run import RunOptions, TrainedRun

RunArgument = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
ImagesArgument = Annotated[
    Path, typer.Argument(help="Folder of images at any depth, or embeddings (.npy, .npz).")
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder by its timm name, torchvision/NAME or hub/OWNER/REPO:NAME.", show_default="resnet18"
    ),
]
WeightsOption = Annotated[
    str, typer.Option(help="File of weights; 'default' for published ones; 'none' for a random start.")
]
ImageSizeOption = Annotated[
    int | None,
    typer.Option(min=16, help="Side of the square crop in pixels.", show_default="the encoder's own"),
]
TuneOption = Annotated[
    Tune | None,
    typer.Option(
        help="'full' trains everything, 'head' only the new layers on cached features.",
        show_default="head; full with pcd",
    ),
]
MethodOption = Annotated[
    Method,
    typer.Option(help="'pcd' is the paper's method, 'consensus' the better one (docs/consensus.md)."),
]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file of settings.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="One setting, NAME=VALUE; may be repeated. See `ucds settings`.", show_default=False
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of every random choice.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Take up the unfinished run in --out.")]
AcceleratorOption = Annotated[Accelerator, typer.Option(help="Device to compute on.")]
DevicesOption = Annotated[int, typer.Option(min=1, help="Processes, one a device; they share every batch.")]
PrecisionOption = Annotated[
    Precision, typer.Option(help="Precision of forward passes; the transport stays in fp32.")
]
CheckpointOption = Annotated[float, typer.Option(min=0, help="Seconds of work that a crash may cost.")]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of the cache.", show_default="the user's cache folder")
]
CacheLimitOption = Annotated[
    float | None,
    typer.Option(min=0, help="Bound on decoded images in the cache, in GB.", show_default="8.6"),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def say(message: str) -> None:
    """Print a message apart from a command's output; of several processes one does."""
    if _is_first_process():
        print(message, file=sys.stderr, flush=True)


def present(sentence: str, values: Mapping[str, Any], *, quiet: bool, as_json: bool) -> None:
    """Present a command's result: as JSON on standard output, or as a sentence beside it."""
    if as_json and _is_first_process():
        print(json.dumps(values, indent=2))
    elif not quiet:
        say(sentence)


def present_run(run: TrainedRun, *, quiet: bool, as_json: bool) -> None:
    """Present the result of a training command."""
    sentence = f"{run.role} model written to {run.folder}"
    if run.resumed_finished:
        sentence = f"{run.folder} is finished already"
    present(sentence, run.to_dict(), quiet=quiet, as_json=as_json)


def present_labels(labels: ClusterLabels, out: Path, *, quiet: bool, as_json: bool) -> None:
    """Present the result of a command that writes a label file."""
    sentence = f"{len(labels.ids):,} labels of {labels.n_clusters} clusters written to {out}"
    values = {"samples": len(labels.ids), "n_clusters": labels.n_clusters, "provider": labels.provider}
    present(sentence, values | {"out": str(out)}, quiet=quiet, as_json=as_json)


def make_reporter(quiet: bool) -> Reporter:
    """Make the reporter of a command: a bar, plain lines, or nothing."""
    from ucds.training.progress import Quiet, terminal_reporter

    return Quiet() if quiet else terminal_reporter()


def make_settings(
    method: Method, side: Role, path: Path | None, given: list[str] | None, tune: Tune | None
) -> MethodSettings:
    """Read the method's settings from a file and from single options."""
    from ucds.config import read_settings

    return read_settings(method, side, path, given or (), tune=tune)


def make_encoder_options(backbone: str | None, weights: str, image_size: int | None) -> EncoderOptions:
    """Gather the encoder's options."""
    from ucds.training.inputs import EncoderOptions

    return EncoderOptions(backbone, weights, image_size)


def make_run_options(
    seed: int,
    resume: bool,
    accelerator: Accelerator,
    devices: int,
    precision: Precision,
    checkpoint_seconds: float,
) -> RunOptions:
    """Gather the options of a run."""
    from ucds.training.run import RunOptions

    return RunOptions(seed, resume, accelerator, devices, precision, checkpoint_seconds)


def make_cache_options(folder: Path | None, limit: float | None) -> CacheOptions:
    """Gather the options of the cache; its bound is given in GB."""
    from ucds.training.inputs import CacheOptions

    return CacheOptions(folder, None if limit is None else int(limit * 1e9))


def _is_first_process() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"
