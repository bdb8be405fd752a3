"""The application, the options that several commands share, and the objects that commands make from them.

A command takes a group of options as one parameter; :func:`command` shows each field as an option.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import typer.core
from typer import Argument, Option
from typer.models import ArgumentInfo

from ucds.choices import Accelerator, Method, Pooling, Precision, Role, Tune
from ucds.errors import printable
from ucds.training.options import Compute, EncoderOptions, RunOptions
from ucds.training.processes import is_first_on_machine, is_first_process
from ucds.training.progress import STARTING, Quiet, Reporter, end_bar, print_line, terminal_reporter

if TYPE_CHECKING:
    from ucds.config import MethodSettings
    from ucds.labels.cluster_labels import ClusterLabels
    from ucds.training.run import TrainedRun

PROVIDER, CLIENT, RESEARCHER = "Provider", "Client", "Researcher"
"""Panels of ``ucds --help``."""
ENCODER, METHOD, COMPUTING = "Encoder", "Method", "Computing"
"""Panels of the options of one command, the rare ones last."""
_QUIET, _JSON = "--quiet", "--json"

OPTIONS: dict[str, str] = {}
"""Option of each argument of the Python functions, by the argument's name; :func:`command` fills it."""
_ARGUMENT = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
_BARE = ("True", "QUICK")  # values of which an option says nothing

RunArgument = Annotated[Path, Argument(help="Folder of a finished run.")]
ImagesArgument = Annotated[
    str, Argument(help="Folder, list or table of images, features, or embeddings; see docs/inputs.md.")
]
RunFolderOption = Annotated[Path, Option(help="Run folder to make.")]
LabelFileOption = Annotated[Path, Option(help="Label file to write.")]
CLUSTERS_HELP = "Number of clusters, K; 'auto' or a range such as 3..40 lets ucds choose."
SeedOption = Annotated[int, Option(min=0, help="Seed of every random choice.")]
PrecisionOption = Annotated[
    Precision, Option(help="Precision of forward passes; the transport has double precision.")
]


class _Commands(typer.core.TyperGroup):
    """All commands; options that every command has may stand before or after a command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the options that every command has to the front, where the library looks for them."""
        end = args.index("--") if "--" in args else len(args)
        mine = [word for word in args[:end] if word in (_QUIET, _JSON)]
        others = [word for word in args[:end] if word not in mine]
        return list(super().parse_args(ctx, mine + others + args[end:]))

    def list_commands(self, ctx: Any) -> list[str]:
        """List what a newcomer looks for first: `sort`, the client's commands, and the researcher's last."""
        panels = (CLIENT, PROVIDER, RESEARCHER)
        shown: dict[str, Any] = {name: self.commands[name] for name in super().list_commands(ctx)}
        return sorted(shown, key=lambda name: (panels.index(shown[name].rich_help_panel), name != "sort"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, and name in its help the options that every command has."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            found.epilog = f"{_QUIET} and {_JSON} also work here: see `ucds --help`."
        return found


app = typer.Typer(name="ucds", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        from ucds import __version__

        print(f"ucds {__version__}")
        raise typer.Exit


@app.callback()
def _of_every_command(
    context: typer.Context,
    quiet: Annotated[bool, Option(_QUIET, help="Print nothing but results, warnings and errors.")] = False,
    as_json: Annotated[bool, Option(_JSON, help="Print the result, if there is one, as JSON.")] = False,
    show: Annotated[
        bool, Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Unsupervised clustering under domain shift, with source privacy.

    The options here also work after a command.
    """
    context.obj = Output(quiet, as_json)


@dataclass(frozen=True)
class EncoderGroup:
    """Options of the encoder."""

    PANEL = ENCODER
    backbone: Annotated[
        str | None,
        Option(
            help="Encoder of images: FILE.onnx, hf:OWNER/NAME, or a network's name; see docs/encoders.md.",
            show_default="the encoder in the package",
        ),
    ] = None
    weights: Annotated[
        str,
        Option(help="File of a network's weights; 'default' for published ones; 'none' for a random start."),
    ] = "default"
    image_size: Annotated[
        int | None,
        Option(min=16, help="Side of the square crop in pixels.", show_default="the encoder's own"),
    ] = None
    output: Annotated[
        str | None,
        Option("--encoder-output", help="Output of an ONNX encoder that holds the features."),
    ] = None
    pooling: Annotated[
        Pooling | None,
        Option(help="Token that gives the features of an image: the first one, or the mean of all."),
    ] = None

    def encoder(self) -> EncoderOptions:
        """Return the options of the encoder, as training takes them."""
        return EncoderOptions(self.backbone, self.weights, self.image_size, self.output, self.pooling)


@dataclass(frozen=True)
class MethodGroup:
    """Options of the method that trains."""

    PANEL = METHOD
    method: Annotated[
        Method, Option(help="'consensus': a vote of many clusterings. 'pcd': the method of the paper.")
    ] = "consensus"
    tune: Annotated[
        Tune | None,
        Option(
            help="'full' trains everything, 'head' only the new layers on cached features.",
            show_default="head; full with pcd",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        Option("--set", help="One setting, NAME=VALUE; may be repeated. See `ucds settings`."),
    ] = None
    seed: SeedOption = 0

    def method_settings(self, side: Role, **named: Any) -> MethodSettings:
        """Read the method's settings for one side from ``--set`` and options of their own names."""
        from ucds.config import read_settings

        return read_settings(self.method, side, self.settings or (), tune=self.tune, **named)


@dataclass(frozen=True)
class AboutGroup:
    """Options for what is known about the samples besides their content."""

    PANEL = "What the clusters follow"
    about: Annotated[
        Path | None,
        Option(
            help="Table about the samples: a column 'id' or 'path', and others such as site or scanner.",
            show_default="folders and headers of image files",
        ),
    ] = None
    group: Annotated[
        str | None,
        Option(help="Column of the group of each image, such as its patient.", show_default="none"),
    ] = None


@dataclass(frozen=True)
class WorkGroup:
    """Options of every command that computes on samples."""

    PANEL = COMPUTING
    accelerator: Annotated[Accelerator, Option(help="Device to compute on.")] = "auto"

    def compute(self, reporter: Reporter) -> Compute:
        """Return device, precision, cache and reporter, as every function takes them."""
        return Compute(self.accelerator, reporter=reporter)


@dataclass(frozen=True)
class TrainingGroup(WorkGroup):
    """Options of a training run."""

    devices: Annotated[
        int,
        Option(min=1, help="Number of processes, one per device, that share every batch; not with torchrun."),
    ] = 1
    precision: PrecisionOption = "32-true"
    resume: Annotated[bool, Option("--resume", help="Continue the unfinished run in --out.")] = False

    def run_options(self, seed: int) -> RunOptions:
        """Return the options of the run, as training takes them."""
        return RunOptions(seed, self.resume, self.devices)

    def compute(self, reporter: Reporter) -> Compute:
        """See :meth:`WorkGroup.compute`."""
        return replace(super().compute(reporter), precision=self.precision)


@dataclass(frozen=True)
class Output:
    """Prints the progress and the result of a command, as --quiet and --json ask."""

    quiet: bool
    as_json: bool

    def start(self) -> Reporter:
        """Make the receiver of progress messages, see :func:`start`."""
        return Quiet() if self.quiet else start()

    def tell(self, sentence: str) -> None:
        """Print a sentence; with --quiet, only if it is a warning."""
        if not self.quiet or sentence.startswith("warning:"):
            say(sentence)

    def present(self, told: str | list[str], result: Any) -> None:
        """Print a result as JSON on standard output, or in words on standard error."""
        end_bar()
        if self.as_json and is_first_process():
            values = result if isinstance(result, dict) else asdict(result)
            print(json.dumps(values, indent=2, default=str))
        else:
            for line in [told] if isinstance(told, str) else told:
                self.tell(line)

    def present_run(self, run: TrainedRun, page: Path | None = None) -> None:
        """Print the result of a training command, and where its report is, if it has one."""
        done = f"{run.folder} is finished already"
        sentence = done if run.resumed_finished else f"{run.role} model written to {run.folder}"
        if page is None:
            self.present(sentence, run)
        else:
            self.present(f"{sentence}; open {page} in a browser", asdict(run) | {"report": page})

    def present_labels(self, labels: ClusterLabels, out: Path) -> None:
        """Print the result of a command that writes a label file."""
        count, clusters = len(labels.ids), labels.n_clusters
        values = {"samples": count, "n_clusters": clusters, "provider": labels.provider, "out": out}
        self.present(f"{count:,} labels of {clusters} clusters written to {out}", values)


def command(
    name: str, panel: str | None = None, of: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a function a command, in a panel of the help.

    Each field of a group, a dataclass, becomes an option in the group's panel; ``output`` gets an
    :class:`Output`.
    """
    return lambda function: of.command(name, rich_help_panel=panel)(_expand(function))


def _expand(command: Callable[..., None]) -> Callable[..., None]:
    """Return a function that has each field of a group as a parameter."""
    given = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: entry.annotation for name, entry in given.items() if is_dataclass(entry.annotation)
    }
    shown = [entry.replace(kind=entry.KEYWORD_ONLY) for name, entry in given.items() if name not in groups]
    groups.pop("output", None)
    for group in groups.values():
        hints = get_type_hints(group, include_extras=True)
        for field in fields(group):
            hint = hints[field.name]
            hint.__metadata__[0].rich_help_panel = group.PANEL
            entry = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
            shown.append(entry.replace(annotation=hint))
    OPTIONS.update((entry.name, _spelling(entry)) for entry in shown)
    shown.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @wraps(command)
    def run(context: typer.Context, **values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        if "output" in given:
            values["output"] = context.find_root().obj
        command(**values)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def _spelling(entry: inspect.Parameter) -> str:
    """Return how a parameter of a command is written on the command line."""
    shown = entry.annotation.__metadata__[0]
    if isinstance(shown, ArgumentInfo):
        return entry.name.upper()
    written = [shown.default, *(shown.param_decls or ())]  # Typer takes the first name for a default
    named = (name for name in written if isinstance(name, str) and name.startswith("--"))
    return next(named, "--" + entry.name.replace("_", "-"))


def in_options(message: str) -> str:
    """Write the arguments that a message names in backquotes, with or without a value, as options.

    So "`accelerator="cpu"`" becomes "--accelerator cpu". Other words in backquotes stay as they are.
    """

    def spell(found: re.Match[str]) -> str:
        option, value = OPTIONS.get(found[1]), found[2]
        if option is None:
            return found[0]
        return option if value is None or value in _BARE else f"{option} {value}".replace('"', "")

    return _ARGUMENT.sub(spell, message)


class _InOptions(Reporter):
    """Passes on progress, and messages with options in place of the names of arguments."""

    def __init__(self, reporter: Reporter) -> None:
        self.show = reporter.show  # type: ignore[method-assign]
        self._say = reporter.say

    def say(self, message: str) -> None:
        """See :class:`Reporter`."""
        self._say(in_options(message))


def start() -> Reporter:
    """Show on a terminal that a command has started, and make the receiver of its progress messages.

    A command calls this before it loads libraries, which may take seconds.
    """
    reporter = _InOptions(terminal_reporter(command=True))
    reporter.show(STARTING, 0, 0)
    return reporter


def show(text: str) -> None:
    """Print a result on standard output, at once, without control characters in its lines."""
    end_bar()
    print(*map(printable, text.split("\n")), sep="\n", flush=True)


def say(message: str, *, on_each_machine: bool = False) -> None:
    """Print a message on standard error, without control characters: once a run, or once a machine."""
    if is_first_on_machine() if on_each_machine else is_first_process():
        print_line(in_options(message))
