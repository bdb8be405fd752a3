"""The source owner's commands."""

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
    PrecisionOption,
    RecipeOption,
    ResumeOption,
    RunArgument,
    SeedOption,
    SetOption,
    TuneOption,
    WeightsOption,
    make_cache_options,
    make_config,
    make_run_options,
    say,
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
    recipe: RecipeOption = None,
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
) -> None:
    """Learn a clustering model from several unlabelled domains."""
    method = make_config(config, settings, tune, recipe)
    options = make_run_options(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)
    from ucds.data.layouts import tell_layout
    from ucds.source.train import train_source
    from ucds.training.launch import already_finished, finish, open_for_training, open_run, refuse_used_folder
    from ucds.training.progress import terminal_reporter

    refuse_used_folder(options)
    reporter, places = terminal_reporter(), make_cache_options(cache, cache_limit)
    names = domains.split(",") if domains else None
    tell_layout(data, names, say, with_classes=False)
    inputs = open_for_training(
        data,
        backbone=backbone,
        weights=weights,
        with_domains=True,
        domains=names,
        cache=places,
        reporter=reporter,
    )
    identity = {"role": "source", "clusters": clusters} | inputs.identity
    if already_finished(options, method, identity):
        return say(f"{out} is finished already")
    with open_run(options, method, reporter, identity=identity) as session:
        model = train_source(session, inputs.backbone, inputs.data, clusters, cache=places.place)
        finish(session, model, inputs, "source")
    say(f"source model written to {out}")


@app.command(rich_help_panel=PANEL)
def label(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="Label file to write.")],
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Label samples offline; the file holds one integer for each of them."""
    from ucds.source.label import label as label_samples
    from ucds.training.launch import open_for_prediction
    from ucds.training.model_file import load_model
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    stored = load_model(run, role="source")
    reporter, places = terminal_reporter(), make_cache_options(cache, cache_limit)
    data = open_for_prediction(
        images,
        stored.card.backbone,
        with_domains=False,
        cache=places,
        reporter=reporter,
    )
    runtime = Runtime(accelerator=accelerator, reporter=reporter)
    labels = label_samples(stored, data, runtime, cache=places.place)
    labels.save(out)
    say(f"{len(labels.ids):,} labels of {labels.n_clusters} clusters written to {out}")
