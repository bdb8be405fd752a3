"""The target owner's commands."""

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
from ucds.errors import UserError

PANEL = "Target owner"


@app.command("train-target", rich_help_panel=PANEL)
def train_target_command(
    images: ImagesArgument,
    labels: Annotated[Path, typer.Option(help="Label file from the source owner.")],
    out: Annotated[Path, typer.Option(help="Run folder to make.")],
    backbone: BackboneOption = None,
    weights: WeightsOption = "default",
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
    """Train a model of your own from labels and unlabelled samples (stages 2 and 3)."""
    method = make_config(config, settings, tune)
    options = make_run_options(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.target.train import train_target
    from ucds.training.launch import already_finished, finish, open_for_training, open_run
    from ucds.training.progress import terminal_reporter

    if already_finished(options):
        return say(f"{out} is finished already")
    answers = ClusterLabels.load(labels)
    reporter, places = terminal_reporter(), make_cache_options(cache, cache_limit)
    inputs = open_for_training(
        images, backbone=backbone, weights=weights, with_domains=False, cache=places, reporter=reporter
    )
    answers = answers.align(inputs.data.samples.ids)
    identity = {
        "role": "target",
        "clusters": answers.n_clusters,
        "labels": answers.fingerprint,
    } | inputs.identity
    with open_run(options, method, reporter, identity=identity) as session:
        model = train_target(session, inputs.backbone, inputs.data, answers, cache=places.place)
        finish(session, model, inputs, "target")
    say(f"target model written to {out}")


@app.command(rich_help_panel=PANEL)
def predict(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="CSV file to write.")],
    sort_into: Annotated[
        Path | None,
        typer.Option(help="Copy the images into one folder a cluster, below this one.", show_default=False),
    ] = None,
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Find the cluster of each sample with your own model."""
    from ucds.target.predict import predict_clusters, sort_into_folders
    from ucds.training.launch import is_vector_file, open_for_prediction
    from ucds.training.model_file import load_model
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    if sort_into is not None and is_vector_file(images):
        raise UserError("--sort-into needs images, not embeddings")
    stored = load_model(run, role="target")
    data = open_for_prediction(
        images,
        stored.card.backbone,
        with_domains=False,
        cache=make_cache_options(cache, cache_limit),
        reporter=terminal_reporter(),
    )
    predictions = predict_clusters(stored, data, Runtime(accelerator=accelerator))
    if sort_into is not None:
        sort_into_folders(sort_into, images, predictions, stored.card.n_clusters)
    predictions.save(out)
    say(f"clusters of {len(predictions.ids):,} samples written to {out}")
