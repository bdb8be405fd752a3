"""The target owner's commands."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from ucds.errors import UcdsWarning, UserError

if TYPE_CHECKING:
    from ucds.labels.client import LabelClient
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.training.launch import CacheOptions, Inputs, RunOptions
    from ucds.training.progress import Reporter

PANEL = "Target owner"

UrlOption = Annotated[
    str | None, typer.Option(help="Label service of the source owner, https://..", show_default=False)
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        envvar="UCDS_KEY",
        help="Your key. Safer in the environment variable: others on the machine can read a command line.",
        show_default=False,
    ),
]
MaxQueriesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Have only so many samples labelled, well spread over what the backbone sees.",
        show_default="all",
    ),
]
ParallelOption = Annotated[int, typer.Option(min=1, max=64, help="Requests under way at a time.")]
BatchSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Most samples in a request.", show_default="64")
]
PlainHttpOption = Annotated[
    bool, typer.Option("--allow-plain-http", help="Send the key unencrypted to another machine.")
]


@app.command(rich_help_panel=PANEL)
def query(
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="Label file to write.")],
    url: Annotated[str, typer.Option(help="Label service of the source owner, https://..")],
    key: KeyOption = None,
    max_queries: MaxQueriesOption = None,
    parallel: ParallelOption = 4,
    batch_size: BatchSizeOption = None,
    allow_plain_http: PlainHttpOption = False,
    backbone: BackboneOption = None,
    weights: WeightsOption = "default",
    seed: SeedOption = 0,
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Ask a label service about your samples; if it stops on the way, run the same command again.

    Backbone, weights and seed play a part with --max-queries only: they choose the samples to ask about.
    """
    client = make_label_client(url, key, parallel, batch_size, allow_plain_http)
    from ucds.labels.query import query_labels
    from ucds.labels.questions import open_questions
    from ucds.training.progress import terminal_reporter, told_to

    reporter, choose = terminal_reporter(), None
    with client:
        if max_queries is None:
            if backbone is not None:
                warnings.warn("--backbone is ignored without --max-queries", UcdsWarning, stacklevel=1)
            questions = open_questions(images)
        else:
            from ucds.target.ask import choose_spread, questions_about
            from ucds.training.launch import open_for_training
            from ucds.training.runtime import Runtime

            places = make_cache_options(cache, cache_limit)
            inputs = open_for_training(
                images,
                backbone=backbone,
                weights=weights,
                with_domains=False,
                cache=places,
                reporter=reporter,
            )
            runtime = Runtime(accelerator=accelerator, seed=seed, reporter=reporter)
            questions = questions_about(inputs.data.samples)
            choose = choose_spread(inputs.data, inputs.backbone, runtime, max_queries, cache=places.place)
        try:
            progress = told_to(reporter, "ask for labels")
            labels = query_labels(client, questions, out, choose=choose, progress=progress)
        except KeyboardInterrupt:
            reporter.end()
            say("stopped, with all labels kept: run the same command again to go on")
            raise typer.Exit(130) from None
        finally:
            reporter.end()
    say(f"{len(labels.ids):,} labels of {labels.n_clusters} clusters written to {out}")


def make_label_client(
    url: str, key: str | None, parallel: int = 4, batch_size: int | None = None, plain_http: bool = False
) -> LabelClient:
    """A client of a label service, from the options; an empty key is none."""
    from ucds.labels.client import LabelClient

    secret = key or None
    return LabelClient(url, secret, parallel=parallel, batch_size=batch_size, allow_plain_http=plain_http)


@app.command("train-target", rich_help_panel=PANEL)
def train_target_command(
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="Run folder to make.")],
    clusters: Annotated[
        int | None, typer.Option(min=2, help="Number of clusters, K.", show_default="the provider's")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Label file from the source owner; or give --url.", show_default=False),
    ] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    max_queries: MaxQueriesOption = None,
    allow_plain_http: PlainHttpOption = False,
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
    """Train a model of your own from a provider's labels and unlabelled samples.

    Labels come from a file, or straight from a label service; those are then kept beside the run folder. With
    neither, but with --clusters, the samples are clustered alone.
    """
    if labels is not None and url is not None:
        raise UserError("give either --labels, a file, or --url, a service")
    if labels is None and url is None and clusters is None:
        raise UserError("give --labels, a file, or --url, a service; or --clusters, to cluster alone")
    if max_queries is not None and url is None:
        warnings.warn("--max-queries is ignored without --url", UcdsWarning, stacklevel=1)
    method = make_config(config, settings, tune, recipe)
    options = make_run_options(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.target.train import train_target
    from ucds.training.launch import already_finished, finish, open_for_training, open_run, refuse_used_folder
    from ucds.training.progress import terminal_reporter

    refuse_used_folder(options)
    client = None if url is None else make_label_client(url, key, plain_http=allow_plain_http)
    answers = None if labels is None else ClusterLabels.load(labels)
    reporter, places = terminal_reporter(), make_cache_options(cache, cache_limit)
    inputs = open_for_training(
        images, backbone=backbone, weights=weights, with_domains=False, cache=places, reporter=reporter
    )
    if client is not None:
        with client:
            answers = _ask_for_run(client, inputs, options, max_queries, places, reporter)
    if answers is not None:
        answers = answers.align(inputs.data.samples.ids)
    identity = {
        "role": "target",
        "clusters": clusters or (answers and answers.n_clusters),
        "labels": answers and answers.fingerprint,
    } | inputs.identity
    if already_finished(options, method, identity):
        return say(f"{out} is finished already")
    with open_run(options, method, reporter, identity=identity) as session:
        model = train_target(
            session, inputs.backbone, inputs.data, answers, n_clusters=clusters, cache=places.place
        )
        finish(session, model, inputs, "target")
    say(f"target model written to {out}")


def _ask_for_run(
    client: LabelClient,
    inputs: Inputs,
    options: RunOptions,
    max_queries: int | None,
    places: CacheOptions,
    reporter: Reporter,
) -> ClusterLabels:
    from ucds.target.ask import ask_for_run, choose_spread
    from ucds.training.runtime import Runtime

    choose = None
    if max_queries is not None:
        runtime = Runtime(accelerator=options.accelerator, seed=options.seed, reporter=reporter)
        choose = choose_spread(inputs.data, inputs.backbone, runtime, max_queries, cache=places.place)
    return ask_for_run(
        client,
        inputs.data.samples,
        options.out,
        resume=options.resume,
        choose=choose,
        reporter=reporter,
    )


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
    from ucds.data.images import ImageSamples
    from ucds.target.predict import predict_clusters, refuse_used_folder, sort_into_folders
    from ucds.training.launch import is_vector_file, open_for_prediction
    from ucds.training.model_file import load_model
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    if sort_into is not None and is_vector_file(images):
        raise UserError("--sort-into needs images, not embeddings")
    if sort_into is not None:
        refuse_used_folder(sort_into)
    stored = load_model(run, role="target")
    reporter, places = terminal_reporter(), make_cache_options(cache, cache_limit)
    data = open_for_prediction(
        images,
        stored.card.backbone,
        with_domains=False,
        cache=places,
        reporter=reporter,
    )
    runtime = Runtime(accelerator=accelerator, reporter=reporter)
    predictions = predict_clusters(stored, data, runtime, cache=places.place)
    if sort_into is not None:
        assert isinstance(data.samples, ImageSamples)
        sort_into_folders(sort_into, images, data.samples.paths, predictions, stored.card.n_clusters)
    predictions.save(out)
    say(f"clusters of {len(predictions.ids):,} samples written to {out}")
