"""The provider's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ucds.cli.app import app
from ucds.cli.options import (
    AcceleratorOption,
    BackboneOption,
    CacheLimitOption,
    CacheOption,
    CheckpointOption,
    ConfigOption,
    DevicesOption,
    ImagesArgument,
    ImageSizeOption,
    JsonOption,
    MethodOption,
    PrecisionOption,
    QuietOption,
    ResumeOption,
    RunArgument,
    SeedOption,
    SetOption,
    TuneOption,
    WeightsOption,
    make_cache_options,
    make_encoder_options,
    make_reporter,
    make_run_options,
    make_settings,
    present_labels,
    present_run,
)

PANEL = "Source owner"


@app.command("train-source", rich_help_panel=PANEL)
def train_source_command(
    data: Annotated[
        Path, typer.Argument(help="Folder with one folder a domain, or .npz with one array a domain.")
    ],
    clusters: Annotated[int, typer.Option(min=2, help="Number of clusters, K.")],
    out: Annotated[Path, typer.Option(help="Run folder to make.")],
    domains: Annotated[
        str | None, typer.Option(help="Domains to take, separated by commas.", show_default="all")
    ] = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = "default",
    image_size: ImageSizeOption = None,
    method: MethodOption = "consensus",
    tune: TuneOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seed: SeedOption = 0,
    resume: ResumeOption = False,
    accelerator: AcceleratorOption = "auto",
    devices: DevicesOption = 1,
    precision: PrecisionOption = "32-true",
    checkpoint_seconds: CheckpointOption = 60.0,
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a clustering model from several unlabelled domains."""
    chosen = make_settings(method, "source", config, settings, tune)
    from ucds.source.train import train_source

    run = train_source(
        data,
        out,
        clusters,
        domains=domains.split(",") if domains else None,
        encoder=make_encoder_options(backbone, weights, image_size),
        settings=chosen,
        options=make_run_options(seed, resume, accelerator, devices, precision, checkpoint_seconds),
        cache=make_cache_options(cache, cache_limit),
        reporter=make_reporter(quiet),
    )
    present_run(run, quiet=quiet, as_json=as_json)


@app.command("label", rich_help_panel=PANEL)
def label_command(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="Label file to write.")],
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Label samples offline; the file holds one integer for each of them."""
    from ucds.source.label import label

    labels = label(
        run,
        images,
        out,
        accelerator=accelerator,
        cache=make_cache_options(cache, cache_limit),
        reporter=make_reporter(quiet),
    )
    present_labels(labels, out, quiet=quiet, as_json=as_json)
