"""The command line. Each command imports its own side of the wall, and nothing before it is called."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ucds.choices import Accelerator, Precision, Tune
from ucds.errors import Interrupted, UcdsWarning, UserError

if TYPE_CHECKING:
    from ucds.config import Config
    from ucds.training.launch import CacheOptions, RunOptions

_show_library_warning = warnings.showwarning

app = typer.Typer(
    name="ucds",
    help="Unsupervised clustering under domain shift, with source privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
        help="'full' trains everything, 'head' only the new layers on cached features.", show_default="full"
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
    typer.Option(min=0, help="Bound on decoded images in the cache, in GB.", show_default="none"),
]


@app.command("train-source")
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
    """Source owner: learn a clustering model from several unlabelled domains (stage 1)."""
    method = _config(config, settings, tune)
    options = _run_options(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)
    from ucds.source.train import train_source
    from ucds.training.launch import already_finished, finish, open_for_training, open_run
    from ucds.training.progress import terminal_reporter

    if already_finished(options):
        return _say(f"{out} is finished already")
    reporter, places = terminal_reporter(), _cache(cache, cache_limit)
    inputs = open_for_training(
        data,
        backbone=backbone,
        weights=weights,
        with_domains=True,
        domains=domains.split(",") if domains else None,
        cache=places,
        reporter=reporter,
    )
    identity = {"role": "source", "clusters": clusters} | inputs.identity
    with open_run(options, method, reporter, identity=identity) as session:
        model = train_source(session, inputs.backbone, inputs.data, clusters, cache=places.place)
        finish(session, model, inputs, "source")
    _say(f"source model written to {out}")


@app.command()
def label(
    run: RunArgument,
    images: ImagesArgument,
    out: Annotated[Path, typer.Option(help="Label file to write.")],
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Source owner: label samples offline; the file holds one integer for each of them."""
    from ucds.source.label import label as label_samples
    from ucds.training.launch import open_for_prediction
    from ucds.training.model_file import load_model
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    stored = load_model(run, role="source")
    data = open_for_prediction(
        images,
        stored.card.backbone,
        with_domains=False,
        cache=_cache(cache, cache_limit),
        reporter=terminal_reporter(),
    )
    labels = label_samples(stored, data, Runtime(accelerator=accelerator))
    labels.save(out)
    _say(f"{len(labels.ids):,} labels of {labels.n_clusters} clusters written to {out}")


@app.command("train-target")
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
    """Target owner: train a model of your own from labels and unlabelled samples (stages 2 and 3)."""
    method = _config(config, settings, tune)
    options = _run_options(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.target.train import train_target
    from ucds.training.launch import already_finished, finish, open_for_training, open_run
    from ucds.training.progress import terminal_reporter

    if already_finished(options):
        return _say(f"{out} is finished already")
    answers = ClusterLabels.load(labels)
    reporter, places = terminal_reporter(), _cache(cache, cache_limit)
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
    _say(f"target model written to {out}")


@app.command()
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
    """Target owner: find the cluster of each sample with your own model."""
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
        cache=_cache(cache, cache_limit),
        reporter=terminal_reporter(),
    )
    predictions = predict_clusters(stored, data, Runtime(accelerator=accelerator))
    if sort_into is not None:
        sort_into_folders(sort_into, images, predictions, stored.card.n_clusters)
    predictions.save(out)
    _say(f"clusters of {len(predictions.ids):,} samples written to {out}")


@app.command()
def evaluate(
    run: RunArgument,
    data: Annotated[
        Path, typer.Argument(help="Samples in class folders: one folder a domain for a source run.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write.", show_default="RUN/evaluation.json")
    ] = None,
    accelerator: AcceleratorOption = "auto",
    cache: CacheOption = None,
    cache_limit: CacheLimitOption = None,
) -> None:
    """Score a model against class folders; nothing else ever reads them."""
    from ucds.evaluation import evaluate_run
    from ucds.files import write_text_atomically
    from ucds.training.progress import terminal_reporter
    from ucds.training.runtime import Runtime

    report = evaluate_run(
        run, data, Runtime(accelerator=accelerator), _cache(cache, cache_limit), terminal_reporter()
    )
    write_text_atomically(out or run / "evaluation.json", json.dumps(report.to_dict(), indent=2) + "\n")
    print(report.in_words())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for figures and metrics.json.")] = Path("demo-out"),
    seed: SeedOption = 0,
) -> None:
    """See the whole story in a minute: handwritten digits in four styles, and every method on them."""
    from ucds.experiments.demo import run_demo
    from ucds.training.progress import terminal_reporter

    print(run_demo(out, seed, terminal_reporter()))


def main() -> None:
    """Run the command line; what a user can cause ends in one line and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except Interrupted:
        _say("stopped, with all work saved: go on with --resume")
        sys.exit(130)
    except UserError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print our own warnings as one line; those of libraries keep their place in the code."""
    if issubclass(category, UcdsWarning):
        _say(f"warning: {message}")
    else:
        _show_library_warning(message, category, filename, lineno, file, line)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _fail(message: str) -> None:
    _say(f"error: {' '.join(message.split())}")
    sys.exit(2)


def _config(path: Path | None, settings: list[str] | None, tune: Tune | None) -> Config:
    from ucds.config import read_config

    return read_config(path, [*(settings or []), *([f"tune={tune}"] if tune else [])])


def _run_options(
    out: Path,
    resume: bool,
    seed: int,
    accelerator: Accelerator,
    devices: int,
    precision: Precision,
    checkpoint_seconds: float,
) -> RunOptions:
    from ucds.training.launch import RunOptions

    return RunOptions(out, resume, seed, accelerator, devices, precision, checkpoint_seconds)


def _cache(folder: Path | None, limit: float | None) -> CacheOptions:
    from ucds.training.launch import CacheOptions

    return CacheOptions(folder, None if limit is None else int(limit * 1e9))
