"""Options that several commands share, in groups, and the objects that the commands make from them.

A command takes a whole group as one parameter; :func:`expand` shows each field of the group as an option.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ucds.choices import Accelerator, Method, Precision, Role, Tune, read_clusters
from ucds.errors import InputError, printable
from ucds.training.processes import is_first_on_machine, is_first_process
from ucds.training.progress import STARTING, Quiet, Reporter, end_bar, terminal_reporter

if TYPE_CHECKING:
    from ucds.config import MethodSettings
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.training.options import CacheOptions, EncoderOptions
    from ucds.training.run import RunOptions, TrainedRun

_LARGEST_CACHE = 1e9

PROVIDER, CLIENT, RESEARCHER = "Provider", "Client", "Researcher"
"""Panels of ``ucds --help``."""

RunArgument = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
ImagesArgument = Annotated[
    str,
    typer.Argument(
        help="Folder, list or table of images, tar file, features, or embeddings; see docs/data.md."
    ),
]
RunFolderOption = Annotated[Path, typer.Option(help="Run folder to make.")]
LabelFileOption = Annotated[Path, typer.Option(help="Label file to write.")]
CLUSTERS_HELP = "Number of clusters, K; 'auto' or a range such as 3..40 to have it chosen."
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of every random choice.")]
PrecisionOption = Annotated[
    Precision, typer.Option(help="Precision of forward passes; the transport has double precision.")
]


@dataclass(frozen=True)
class EncoderGroup:
    """Options of the encoder."""

    backbone: Annotated[
        str | None,
        typer.Option(
            help="Encoder by its timm name, torchvision/NAME or hub/OWNER/REPO:NAME; several, separated by "
            "commas, vote together.",
            show_default="resnet18",
        ),
    ] = None
    weights: Annotated[
        str,
        typer.Option(
            help="File of weights, or one for each encoder, separated by commas; 'default' for published "
            "ones; 'none' for a random start."
        ),
    ] = "default"
    image_size: Annotated[
        int | None,
        typer.Option(min=16, help="Side of the square crop in pixels.", show_default="the encoder's own"),
    ] = None

    def encoder(self) -> EncoderOptions:
        """Return the encoder as training takes it."""
        from ucds.training.options import EncoderOptions

        return EncoderOptions(self.backbone, self.weights, self.image_size)


@dataclass(frozen=True)
class TrainingGroup(EncoderGroup):
    """Options of a training run."""

    method: Annotated[
        Method,
        typer.Option(
            help="'consensus': a vote of many clusterings, in seconds. 'pcd': prototypes and distillation, "
            "Tanwisuth et al., ICLR 2023."
        ),
    ] = "consensus"
    tune: Annotated[
        Tune | None,
        typer.Option(
            help="'full' trains everything, 'head' only the new layers on cached features.",
            show_default="head; full with pcd",
        ),
    ] = None
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.", show_default=False)] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="One setting, NAME=VALUE; may be repeated. See `ucds settings`.", show_default=False
        ),
    ] = None
    seed: SeedOption = 0
    resume: Annotated[bool, typer.Option("--resume", help="Take up the unfinished run in --out.")] = False
    devices: Annotated[
        int,
        typer.Option(
            min=1, help="Processes, one a device; they share every batch. With torchrun, leave it out."
        ),
    ] = 1
    precision: PrecisionOption = "32-true"
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Seconds between two checkpoints.")] = 60.0

    def method_settings(self, side: Role, **named: Any) -> MethodSettings:
        """Read the method's settings for one side from the file, ``--set`` and options of their own names."""
        from ucds.config import read_settings

        return read_settings(self.method, side, self.config, self.settings or (), tune=self.tune, **named)

    def run_options(self, work: WorkGroup) -> RunOptions:
        """Return the options of the run as training takes them; ``work`` names the device."""
        from ucds.training.run import RunOptions

        return RunOptions(
            self.seed,
            self.resume,
            work.accelerator,
            self.devices,
            self.precision,
            self.checkpoint_seconds,
        )


@dataclass(frozen=True)
class WorkGroup:
    """Options of every command that computes on samples."""

    accelerator: Annotated[Accelerator, typer.Option(help="Device to compute on.")] = "auto"
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the cache.", show_default="the user's cache folder")
    ] = None
    cache_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Bound on decoded images in the cache, in GB.", show_default="8.6"),
    ] = None

    def cache_options(self) -> CacheOptions:
        """Return the options of the cache, with its bound in bytes."""
        from ucds.training.options import CacheOptions

        if self.cache_limit is not None and not self.cache_limit < _LARGEST_CACHE:
            raise InputError(
                f"--cache-limit is a number of GB below {_LARGEST_CACHE:g}, not {self.cache_limit}"
            )
        limit = None if self.cache_limit is None else int(self.cache_limit * 1e9)
        return CacheOptions(self.cache, limit)


@dataclass(frozen=True)
class OutputGroup:
    """Options of what a command prints."""

    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False

    def reporter(self) -> Reporter:
        """Make the receiver of progress messages, see :func:`start`; with ``--quiet`` it shows nothing."""
        return Quiet() if self.quiet else start()

    def present(self, sentence: str, values: Mapping[str, Any]) -> None:
        """Print a result: as JSON on standard output, or as a sentence on standard error."""
        end_bar()
        if self.as_json and is_first_process():
            print(json.dumps(values, indent=2))
        elif not self.quiet:
            say(sentence)

    def present_run(self, run: TrainedRun, page: Path | None = None) -> None:
        """Print the result of a training command, and where its report is, if it has one."""
        done = f"{run.folder} is finished already"
        sentence = done if run.resumed_finished else f"{run.role} model written to {run.folder}"
        self.present(sentence + name_report(page), run.to_dict() | report_entry(page))

    def present_labels(self, labels: ClusterLabels, out: Path) -> None:
        """Print the result of a command that writes a label file."""
        count, clusters = len(labels.ids), labels.n_clusters
        values = {"samples": count, "n_clusters": clusters, "provider": labels.provider, "out": str(out)}
        self.present(f"{count:,} labels of {clusters} clusters written to {out}", values)


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has each field of a group, a dataclass, as an option of its own."""
    given = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: entry.annotation for name, entry in given.items() if is_dataclass(entry.annotation)
    }
    options = [entry.replace(kind=entry.KEYWORD_ONLY) for name, entry in given.items() if name not in groups]
    for group in groups.values():
        hints = get_type_hints(group, include_extras=True)
        options += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(group)
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def cluster_number(text: str) -> int | str:
    """Return --clusters as training takes it: a number, or the text that asks for a choice."""
    number = read_clusters(text)
    if number == 1:
        raise InputError("--clusters must be at least 2")
    return number if isinstance(number, int) else text


def start() -> Reporter:
    """Show on a terminal that a command has started, and make the receiver of its progress messages.

    A command calls this before it loads libraries, which may take seconds.
    """
    reporter = terminal_reporter(command=True)
    reporter.begin(STARTING, 0)
    return reporter


def show(text: str) -> None:
    """Print a result on standard output, at once."""
    end_bar()
    print(text, flush=True)


def name_report(page: Path | None) -> str:
    """Return the end of a sentence that says where a report is; nothing without a report."""
    return "" if page is None else f"; open {page} in a browser"


def report_entry(page: Path | None) -> dict[str, str]:
    """Return the entry of a report in a result that is printed as JSON; none without a report."""
    return {} if page is None else {"report": str(page)}


def say(message: str, *, on_each_machine: bool = False) -> None:
    """Print a message on standard error, without control characters.

    Args:
        message: text to print.
        on_each_machine: whether the first process of each machine prints it, not only the first of the run.
    """
    if is_first_on_machine() if on_each_machine else is_first_process():
        print(printable(message), file=sys.stderr, flush=True)


def say_warning(message: str) -> None:
    """Print a message only if it is a warning."""
    if message.startswith("warning:"):
        say(message)
