"""Trains in a run folder: opens it, stops on signals with all work saved, and writes the result."""

from __future__ import annotations

import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

from ucds.choices import Role, read_clusters
from ucds.config import MethodSettings, for_side, method_of
from ucds.errors import Interrupted, UserError
from ucds.files import require_space
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.training.inputs import Inputs
from ucds.training.model_file import ModelCard, StoredModel, load_model, save_model
from ucds.training.options import Compute, RunOptions
from ucds.training.prepare import Training
from ucds.training.run_folder import MODEL_FILE, RunFolder


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Attributes:
        folder: run folder, with the model in it.
        role: side that trained.
        n_clusters: number of clusters, K.
        seconds: time spent in the stages; 0 if the run was finished already.
        resumed_finished: whether the run was finished already, so that nothing was left to do.
    """

    folder: Path
    role: Role
    n_clusters: int
    seconds: float
    resumed_finished: bool = False


def train_run(
    out: Path,
    role: Role,
    clusters: int | str,
    inputs: Inputs,
    settings: MethodSettings,
    options: RunOptions,
    compute: Compute,
    train: Callable[[Session[MethodSettings]], Training],
    identity: Mapping[str, Any],
) -> TrainedRun:
    """Train in the run folder ``out``, and write the model into it.

    The number of clusters is given as it was asked for: a number, or text that asks for a choice. The
    function ``train`` trains in the session that it is given. A resumed run must have the same ``identity``.

    Raises:
        InputError: the folder cannot be used, or the machine lacks the devices.
        DamagedFileError: a file of the run to be resumed is damaged.
        NoSpaceError: the disk is full, or the folder is not writable.
        Interrupted: the run was asked to stop; its work is saved.
    """
    packages = ("ucds", "torch", "lightning-fabric", "timm", "numpy")
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    asked = read_clusters(clusters)
    described = {
        "role": role,
        "clusters": asked if isinstance(asked, int) else clusters,  # "31" and 31 are one run
        **identity,
        **inputs.identity,
        "seed": options.seed,
        "precision": compute.precision,
        "method": method_of(settings),
        "settings": for_side(settings, role),
        "versions": versions,
    }
    if options.resume and (out / MODEL_FILE).exists():
        RunFolder(out).refuse_other_run(described)
        return TrainedRun(out, role, load_model(out).card.n_clusters, 0.0, resumed_finished=True)
    weights = sum(weight.numel() * weight.element_size() for weight in inputs.backbone.state().values())
    # The model, and of one that is trained as a whole two checkpoints with three copies of the weights.
    require_space(out, weights * (7 if settings.tune == "full" else 1), "or choose another --out")
    with open_run(out, described, settings, options, compute) as session:
        found = train(session)
        if session.runtime.rank == 0:
            stored = describe_trained(found, role, out.resolve().name)
            save_model(out, stored)
            RunFolder(out).drop_checkpoint()  # only now that the result is safe
    seconds = sum(stage.seconds for stage in found.stages)
    return TrainedRun(out, role, found.trained.n_clusters, seconds)


@contextmanager
def open_run(
    out: Path, described: Mapping[str, Any], settings: MethodSettings, options: RunOptions, compute: Compute
) -> Iterator[Session[MethodSettings]]:
    """Open a run folder and a session in it, for the time of a run.

    The first SIGINT or SIGTERM asks the run to save its work and stop; a second one stops it at once.
    Arguments and errors are those of :func:`train_run`.
    """
    folder = RunFolder(out)
    chosen = {name: value for name, value in asdict(options).items() if name != "resume"}
    runtime = Runtime(compute, **chosen, folder=folder)
    runtime.launch()
    with closing(folder):
        runtime.once(lambda: folder.open(dict(described), resume=options.resume))
        with closing(Session(runtime, settings)) as session:
            try:
                with _stopping_on_signals(runtime):
                    yield session
            except Interrupted:
                raise  # a number of clusters that was chosen is kept for --resume
            except Exception as error:
                # A folder without a checkpoint has nothing to go on with, and would be refused as not empty.
                # A fault is reported by its traceback, which lies elsewhere; the log has nothing but losses.
                session.close()
                folder.abandon()
                if runtime.has_lost_others(error):
                    detail = "a process of the run has ended; look at its messages, and go on with --resume"
                    raise UserError(detail) from error
                raise


@contextmanager
def _stopping_on_signals(runtime: Runtime) -> Iterator[None]:
    def request_stop(number: int, frame: FrameType | None) -> None:
        if runtime.stop_requested:
            raise KeyboardInterrupt
        runtime.stop_requested = True
        runtime.reporter.say("stopping as soon as all work is saved; once more to stop at once")

    # Python lets only the main thread set handlers; in another one the caller has the signals.
    own = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if own else ()
    before = {number: signal.signal(number, request_stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe_trained(found: Training, role: Role, name: str) -> StoredModel:
    """Put a trained model together with its description; a provider signs labels with the ``name``."""
    card = ModelCard(
        role=role,
        name=name,
        n_clusters=found.trained.n_clusters,
        bottleneck_width=found.trained.bottleneck_width,
        backbone=found.backbone.spec,
        weights=found.backbone.weights,
        domains=found.data.samples.domain_names,
        stages=tuple(stage.name for stage in found.stages),
        tune=found.tune,
        unit_features=found.trained.encoder.unit_features,
        recentres=found.recentres,
        privacy=found.privacy,
    )
    proportions = found.stages[-1].proportions.cpu()
    if found.tune == "full":
        return StoredModel.of(card, found.trained, proportions)
    return StoredModel(card, found.trained, found.backbone, proportions)
