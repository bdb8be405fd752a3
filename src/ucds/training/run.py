"""Trains in a run folder: opens the folder, saves all work when a signal stops it, and writes the result."""

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

from ucds.choices import Precision, Role, read_clusters
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings, for_side, method_of
from ucds.encoders.encoder import Encoder
from ucds.encoders.spec import FUNCTION
from ucds.errors import InputError, Interrupted, UserError
from ucds.extras import require_extra
from ucds.files import require_space
from ucds.showing import shows
from ucds.training.inputs import Inputs
from ucds.training.model_file import Making, ModelCard, StoredModel, load_model, save_model
from ucds.training.options import Compute, RunOptions
from ucds.training.prepare import Training, tuned_part
from ucds.training.run_folder import MODEL_FILE, RunFolder
from ucds.training.work import Work


@shows()
@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Attributes:
        folder: run folder, with the model in it.
        role: side that trained.
        n_clusters: number of clusters, K.
        seconds: time spent in the stages; 0 if the run had already finished.
        resumed_finished: whether the run had already finished, so that nothing was done.
    """

    folder: Path
    role: Role
    n_clusters: int
    seconds: float
    resumed_finished: bool = False


def require_able(
    settings: MethodSettings,
    n_clusters: int | str | None,
    options: RunOptions,
    compute: Compute,
    *,
    labelled: bool = False,  # whether the samples have a provider's labels
) -> None:
    """Make sure, before any work, that a method can do what is asked for, and has packages and devices."""
    is_chosen = n_clusters is not None and not isinstance(read_clusters(n_clusters), int)
    if isinstance(settings, PCDSettings):
        require_extra("torch", '`method="pcd"`')
        if is_chosen and labelled:
            raise InputError("the provider's labels fix the number of clusters: leave out `n_clusters`")
        from ucds.gradients.session import require_devices  # it brings torch, which takes seconds

        require_devices(compute, options.devices)
        return
    if settings.dp_epsilon is not None:
        require_extra("privacy", "training with `dp_epsilon`")
        if is_chosen:
            raise InputError("with `dp_epsilon`, give `n_clusters` as a number: choosing it is not private")
    if options.devices != 1:
        raise InputError(
            '`devices` is for `method="pcd"`: the method consensus runs in one process. For many images, '
            '`ucds features` with `engine="ray"` computes the features in several processes.'
        )


def train_run(
    out: Path,
    role: Role,
    clusters: int | str,
    inputs: Inputs,
    settings: MethodSettings,
    options: RunOptions,
    compute: Compute,
    train: Callable[[Work[MethodSettings]], Training],
    identity: Mapping[str, Any],
) -> TrainedRun:
    """Train in the run folder ``out``, and write the model into it.

    The number of clusters is a number, or the text that asks ucds to choose it. The function ``train`` does
    the training of the run that it receives. A resumed run must have the same ``identity``.
    """
    making = how_made(role, clusters, inputs.encoder, settings, options.seed, compute.precision)
    tune = tuned_part(settings, inputs.encoder)
    described = {"role": role, **identity, **inputs.identity, "tune": tune, **asdict(making)}
    if options.resume and (out / MODEL_FILE).exists():
        RunFolder(out).refuse_other_run(described)
        return TrainedRun(out, role, load_model(out).card.n_clusters, 0.0, resumed_finished=True)
    weights = sum(array.nbytes for array in inputs.encoder.saved().values())
    # The model, and of one that is trained as a whole two checkpoints with three copies of the weights.
    require_space(out, weights * (7 if settings.tune == "full" else 1), "or choose another `out`")
    with open_run(out, described, settings, options, compute) as work:
        found = train(work)
        if work.first:
            save_model(out, describe_trained(found, role, out.resolve().name, making))
            RunFolder(out).drop_checkpoint()  # only now that the result is safe
    seconds = sum(stage.seconds for stage in found.stages)
    return TrainedRun(out, role, found.head.n_clusters, seconds)


@contextmanager
def open_run(
    out: Path, described: Mapping[str, Any], settings: MethodSettings, options: RunOptions, compute: Compute
) -> Iterator[Work[MethodSettings]]:
    """Open a run folder for the duration of a run.

    The first SIGINT or SIGTERM asks the run to save its work and stop; a second one stops it at once.
    """
    folder = RunFolder(out)
    with closing(folder), closing(make_work(settings, options, compute, folder)) as work:
        work.open(dict(described), resume=options.resume)
        try:
            with _stopping_on_signals(work):
                yield work
        except Interrupted:
            raise  # a number of clusters that was chosen is kept for --resume
        except Exception as error:
            # A folder without a checkpoint has nothing to go on with, and would be refused as not empty.
            # A fault is reported by its traceback, which lies elsewhere; the log has nothing but losses.
            work.close()
            folder.abandon()
            if work.has_lost_others(error):
                detail = "a process of the run has ended; look at its messages, and go on with `resume=True`"
                raise UserError(detail) from error
            raise


def make_work(
    settings: MethodSettings, options: RunOptions, compute: Compute, folder: RunFolder | None = None
) -> Work[MethodSettings]:
    """Make the run of a method; if it has a folder, call :meth:`ucds.training.work.Work.open` next."""
    if isinstance(settings, ConsensusSettings):
        return Work(settings, compute, seed=options.seed, folder=folder)
    from ucds.gradients.session import Session  # it brings torch, which takes seconds

    return Session(settings, compute, seed=options.seed, folder=folder, devices=options.devices)


@contextmanager
def _stopping_on_signals(work: Work[MethodSettings]) -> Iterator[None]:
    def request_stop(number: int, frame: FrameType | None) -> None:
        if work.stop_requested:
            raise KeyboardInterrupt
        work.stop_requested = True
        work.say("stopping as soon as all work is saved; once more to stop at once")

    # Python lets only the main thread set handlers; in another one the caller has the signals.
    own = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if own else ()
    before = {number: signal.signal(number, request_stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_made(
    role: Role,
    clusters: int | str,
    encoder: Encoder,
    settings: MethodSettings,
    seed: int,
    precision: Precision,
) -> Making:
    """Describe a training, for its run folder and for its model."""
    asked = read_clusters(clusters)
    versions = {name: version(name) for name in _computing(settings, encoder)}
    return Making(
        method=method_of(settings),
        settings=for_side(settings, role),
        clusters=asked if isinstance(asked, int) else str(clusters),  # "31" and 31 are one run
        seed=seed,
        precision=precision,
        versions={"python": platform.python_version(), **versions},
    )


def _computing(settings: MethodSettings, encoder: Encoder) -> Iterator[str]:
    """Name the packages whose arithmetic the result of a training depends on."""
    yield from ("ucds", "numpy", "scipy", "scikit-learn")
    spec, by_torch = encoder.spec, encoder.computed_by.startswith("torch")
    if spec.input_size is not None:
        yield "pillow"  # which resizes images
    if encoder.computed_by == "onnxruntime":
        yield "onnxruntime"
    if by_torch and spec.name != FUNCTION:
        yield "torchvision" if spec.name.startswith("torchvision/") else "timm"
    if by_torch or isinstance(settings, PCDSettings):
        yield "torch"
    if isinstance(settings, PCDSettings):
        yield "lightning-fabric"
    elif settings.dp_epsilon is not None:
        yield "opendp"


def describe_trained(found: Training, role: Role, name: str, making: Making) -> StoredModel:
    """Combine a trained model with its description; a provider's labels carry the ``name``."""
    card = ModelCard(
        role=role,
        name=name,
        n_clusters=found.head.n_clusters,
        bottleneck_width=found.head.bottleneck_width,
        encoder=found.encoder.spec,
        weights=found.encoder.weights,
        domains=found.data.samples.domain_names,
        stages=tuple(stage.name for stage in found.stages),
        making=making,
        tune=found.tune,
        unit_features=found.head.unit_features,
        recentres=found.recentres,
        privacy=found.privacy,
    )
    return StoredModel(card, found.head, found.encoder, found.stages[-1].proportions)
