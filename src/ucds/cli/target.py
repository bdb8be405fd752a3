"""The client's commands."""

from __future__ import annotations

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
    present,
    present_labels,
    present_run,
    say,
)
from ucds.errors import InputError

if TYPE_CHECKING:
    from ucds.labels.client import LabelClient

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


@app.command("query", rich_help_panel=PANEL)
def query_command(
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
    image_size: ImageSizeOption = None,
    seed: SeedOption = 0,
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a label service about your samples; if it stops on the way, run the same command again.

    Backbone, weights and seed are used with --max-queries only: they choose the samples to ask about.
    """
    client = make_label_client(url, key, parallel, batch_size, allow_plain_http)
    from ucds.target.ask import query

    with client:
        try:
            labels = query(
                images,
                out,
                client,
                max_queries=max_queries,
                encoder=make_encoder_options(backbone, weights, image_size),
                seed=seed,
                accelerator=accelerator,
                cache=make_cache_options(cache, cache_limit),
                reporter=make_reporter(quiet),
            )
        except KeyboardInterrupt:
            say("stopped, with all labels kept: run the same command again to go on")
            raise typer.Exit(130) from None
    present_labels(labels, out, quiet=quiet, as_json=as_json)


def make_label_client(
    url: str, key: str | None, parallel: int = 4, batch_size: int | None = None, plain_http: bool = False
) -> LabelClient:
    """Make the client of a label service from the options; an empty key is none."""
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
    """Train a model of your own from a provider's labels and unlabelled samples.

    Labels come from a file, or straight from a label service; those are then kept beside the run folder. With
    neither, but with --clusters, the samples are clustered alone.
    """
    if labels is not None and url is not None:
        raise InputError("give either --labels, a file, or --url, a service")
    chosen = make_settings(method, "target", config, settings, tune)
    from ucds.target.train import train_target

    run = train_target(
        images,
        out,
        labels=labels if url is None else make_label_client(url, key, plain_http=allow_plain_http),
        n_clusters=clusters,
        max_queries=max_queries,
        encoder=make_encoder_options(backbone, weights, image_size),
        settings=chosen,
        options=make_run_options(seed, resume, accelerator, devices, precision, checkpoint_seconds),
        cache=make_cache_options(cache, cache_limit),
        reporter=make_reporter(quiet),
    )
    present_run(run, quiet=quiet, as_json=as_json)


@app.command("predict", rich_help_panel=PANEL)
def predict_command(
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
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the cluster of each sample with your own model."""
    from ucds.target.predict import predict

    found = predict(
        run,
        images,
        out,
        sort_into=sort_into,
        accelerator=accelerator,
        cache=make_cache_options(cache, cache_limit),
        reporter=make_reporter(quiet),
    )
    sentence = f"clusters of {len(found.ids):,} samples written to {out}"
    present(sentence, {"samples": len(found.ids), "out": str(out)}, quiet=quiet, as_json=as_json)
