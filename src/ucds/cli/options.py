"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ucds.choices import Accelerator, Precision, Recipe, Tune

if TYPE_CHECKING:
    from ucds.config import Config
    from ucds.training.launch import CacheOptions, RunOptions

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
TuneOption = Annotated[
    Tune | None,
    typer.Option(
        help="'full' trains everything, 'head' only the new layers on cached features.",
        show_default="head; full with pcd",
    ),
]
RecipeOption = Annotated[
    Recipe | None,
    typer.Option(
        help="'pcd' is the paper's method, 'ucds' the better one (docs/recipe.md).", show_default="ucds"
    ),
]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file of settings.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.", show_default=False),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Of every random choice.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Take up the unfinished run in --out.")]
AcceleratorOption = Annotated[Accelerator, typer.Option(help="Where to compute.")]
DevicesOption = Annotated[int, typer.Option(min=1, help="Processes, one a device; they share every batch.")]
PrecisionOption = Annotated[Precision, typer.Option(help="Of forward passes; the transport stays in fp32.")]
CheckpointOption = Annotated[float, typer.Option(min=0, help="Seconds of work that a crash may cost.")]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of the cache.", show_default="the user's cache folder")
]
CacheLimitOption = Annotated[
    float | None,
    typer.Option(min=0, help="Bound on decoded images in the cache, in GB.", show_default="8.6"),
]


def say(message: str) -> None:
    """Tell the user something, apart from a command's output; of several processes one speaks."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(message, file=sys.stderr, flush=True)


def make_config(
    path: Path | None, settings: list[str] | None, tune: Tune | None, recipe: Recipe | None
) -> Config:
    """The method's settings, from a file and from single options; our recipe where nothing names one."""
    from ucds.config import read_config

    options = {"tune": tune, "recipe": recipe}
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return read_config(path, [*(settings or []), *given], recipe="ucds")


def make_run_options(
    out: Path,
    resume: bool,
    seed: int,
    accelerator: Accelerator,
    devices: int,
    precision: Precision,
    checkpoint_seconds: float,
) -> RunOptions:
    """How to run."""
    from ucds.training.launch import RunOptions

    return RunOptions(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)


def make_cache_options(folder: Path | None, limit: float | None) -> CacheOptions:
    """Where the cache lies, and its bound in bytes."""
    from ucds.training.launch import CacheOptions

    return CacheOptions(folder, None if limit is None else int(limit * 1e9))
