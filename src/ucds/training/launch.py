"""Opens what a command line asks for: inputs, a run folder, a runtime. Shared by both sides."""

from __future__ import annotations

import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from ucds.backbones import Backbone, BackboneSpec, build_backbone, identity_backbone
from ucds.choices import Accelerator, Precision
from ucds.config import Config
from ucds.data.cache import default_cache_dir
from ucds.data.folders import Scan, scan_domains, scan_folder
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, load_vectors, subset
from ucds.data.views import ImageView, VectorView, View
from ucds.errors import UserError
from ucds.models import ClusteringModel
from ucds.training.model_file import MODEL_FILE, ModelCard, Role, save_model
from ucds.training.progress import Reporter, told_to
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session
from ucds.training.stage import TrainingData

VECTOR_FILES = (".npy", ".npz")


@dataclass(frozen=True)
class CacheOptions:
    """Where decoded images and features are kept.

    Attributes:
        folder: on disk; the user's cache folder if ``None``.
        limit_bytes: bound on decoded images; what does not fit is decoded at every read.
    """

    folder: Path | None = None
    limit_bytes: int | None = None

    @property
    def place(self) -> Path:
        """The folder to use."""
        return self.folder or default_cache_dir()


@dataclass(frozen=True)
class Inputs:
    """Samples with the encoder and views that fit them."""

    data: TrainingData
    backbone: Backbone

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "data": self.data.samples.fingerprint,
            "backbone": self.backbone.spec.to_dict(),
            "weights": self.backbone.weights,
        }


def open_for_training(
    path: Path,
    *,
    backbone: str | None,
    weights: str,
    image_size: int | None = None,
    with_domains: bool,
    domains: list[str] | None = None,
    cache: CacheOptions,
    reporter: Reporter,
) -> Inputs:
    """Open a folder of images or a file of embeddings, and the encoder to train on it.

    Args:
        path: folder, ``.npy`` or ``.npz``.
        backbone: encoder by name, for images.
        weights: see :func:`ucds.backbones.build_backbone`.
        image_size: side of the square crop in pixels; the encoder's own if ``None``.
        with_domains: whether ``path`` holds one folder (or array) a domain.
        domains: names of the domains to take; all if ``None``.
        cache: where decoded images go.
        reporter: told while images are decoded.

    Raises:
        UserError: the path or the backbone cannot be used, or a target comes in several domains.
    """
    if is_vector_file(path):
        if backbone is not None:
            raise UserError("--backbone is for images: embeddings are used as they are")
        if weights != "default":
            raise UserError("--weights is for images: embeddings are used as they are")
        vectors = load_vectors(path)
        _check_domains(vectors, with_domains, path)
        identity = identity_backbone(vectors.array.shape[1])
        return Inputs(TrainingData(_of_domains(vectors, domains, path), VectorView()), identity)
    scan = scan_domains(path, domains) if with_domains else scan_folder(path)
    built = build_backbone(backbone or "resnet18", weights=weights, input_size=image_size)
    samples = _open_images(scan, built.spec, cache, reporter)
    return Inputs(TrainingData(samples, view_for(built.spec)), built)


def open_for_prediction(
    path: Path,
    spec: BackboneSpec,
    *,
    with_domains: bool,
    cache: CacheOptions,
    reporter: Reporter,
) -> TrainingData:
    """Open inputs for a model that is already trained.

    Raises:
        UserError: the path cannot be used, or its kind or width is not what the model takes.
    """
    if not is_vector_file(path):
        if spec.input_size is None:
            raise UserError(f"this model takes embeddings of width {spec.width} (.npy or .npz), not a folder")
        scan = scan_domains(path) if with_domains else scan_folder(path)
        return TrainingData(_open_images(scan, spec, cache, reporter), view_for(spec))
    if spec.input_size is not None:
        raise UserError(f"this model takes a folder of images, not the embeddings in {path}")
    vectors = load_vectors(path)
    _check_domains(vectors, with_domains, path)
    if vectors.array.shape[1] != spec.width:
        raise UserError(f"{path} has vectors of width {vectors.array.shape[1]}; the model takes {spec.width}")
    return TrainingData(vectors, VectorView())


def is_vector_file(path: Path) -> bool:
    """Whether a path names embeddings rather than a folder of images."""
    return path.suffix.lower() in VECTOR_FILES


def view_for(spec: BackboneSpec) -> View:
    """The views that a backbone takes."""
    if spec.input_size is None:
        return VectorView()
    if spec.mean is None or spec.std is None:
        return ImageView(crop=spec.input_size)
    return ImageView(crop=spec.input_size, mean=spec.mean, std=spec.std)


def stored_size(spec: BackboneSpec) -> int:
    """Side of decoded images: 256 pixels for the usual crop of 224, and in proportion for others.

    Raises:
        UserError: the backbone does not take images.
    """
    if spec.input_size is None:
        raise UserError(f"backbone {spec.name!r} does not take images")
    return round(spec.input_size * 256 / 224)


def _open_images(scan: Scan, spec: BackboneSpec, cache: CacheOptions, reporter: Reporter) -> ImageSamples:
    return ImageSamples.open(
        scan,
        cache.place,
        size=stored_size(spec),
        limit_bytes=cache.limit_bytes,
        progress=told_to(reporter, "decode images"),
    )


def _check_domains(samples: Samples, with_domains: bool, path: Path) -> None:
    if not with_domains and len(samples.domain_names) > 1:
        raise UserError(
            f"{path} holds {len(samples.domain_names)} arrays, but a target is one domain: give one array"
        )


def _of_domains(samples: Samples, domains: list[str] | None, path: Path) -> Samples:
    if domains is None:
        return samples
    unknown = sorted(set(domains) - set(samples.domain_names))
    if unknown:
        known = ", ".join(map(repr, samples.domain_names))
        raise UserError(f"{path} has no domain {', '.join(map(repr, unknown))}; it has {known}")
    chosen = [samples.domain_names.index(name) for name in domains]
    return subset(samples, np.flatnonzero(np.isin(samples.domain, chosen)))


@dataclass(frozen=True)
class RunOptions:
    """How to run: everything that is neither method nor data."""

    out: Path
    resume: bool = False
    seed: int = 0
    accelerator: Accelerator = "auto"
    devices: int = 1
    precision: Precision = "32-true"
    checkpoint_seconds: float = 60.0


@contextmanager
def open_run(
    options: RunOptions, config: Config, reporter: Reporter, *, identity: dict[str, Any]
) -> Iterator[Session]:
    """Hold a run folder and a runtime for the time of a run.

    The first SIGINT or SIGTERM asks the run to save its work and stop; a second one stops it at once.

    Args:
        options: how to run.
        config: the method's settings.
        reporter: whom to tell.
        identity: what else defines the run; a resumed run must have the same.

    Raises:
        UserError: the folder cannot be used, or the machine lacks the devices.
    """
    folder = RunFolder(options.out)
    runtime = Runtime(
        accelerator=options.accelerator,
        devices=options.devices,
        precision=options.precision,
        seed=options.seed,
        folder=folder,
        reporter=reporter,
        checkpoint_seconds=options.checkpoint_seconds,
    )
    runtime.launch()
    try:
        refusal = None
        if runtime.rank == 0:
            try:
                folder.open(_describe(options, config, identity), resume=options.resume)
            except UserError as error:
                refusal = str(error)
        # All processes learn of it: none waits for one that has gone.
        refusal = runtime.fabric.broadcast(refusal)
        if refusal is not None:
            raise UserError(refusal)
        session = Session(runtime, config)
    except BaseException:
        folder.close()
        raise
    try:
        with _stopping_on_signals(runtime):
            yield session
    except UserError:
        session.close()
        folder.abandon()
        raise
    finally:
        session.close()
        folder.close()


@contextmanager
def _stopping_on_signals(runtime: Runtime) -> Iterator[None]:
    def ask(number: int, frame: FrameType | None) -> None:
        if runtime.stop_requested:
            raise KeyboardInterrupt
        runtime.stop_requested = True
        runtime.reporter.say("stopping as soon as all work is saved; once more to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def refuse_used_folder(options: RunOptions) -> None:
    """Make sure, before any work, that the run's folder can be used.

    Raises:
        UserError: it is in use for something else.
    """
    RunFolder(options.out).refuse_other_use(resume=options.resume)


def already_finished(options: RunOptions, config: Config, identity: dict[str, Any]) -> bool:
    """Whether there is nothing left to resume.

    Raises:
        UserError: the finished run is another one.
    """
    if not options.resume or not (options.out / MODEL_FILE).exists():
        return False
    RunFolder(options.out).refuse_other_run(_describe(options, config, identity))
    return True


def _describe(options: RunOptions, config: Config, identity: dict[str, Any]) -> dict[str, Any]:
    return identity | {
        "seed": options.seed,
        "precision": options.precision,
        "config": config.model_dump(mode="json"),
        "versions": _versions(),
    }


def finish(session: Session, model: ClusteringModel, inputs: Inputs, role: Role) -> None:
    """Write the result of a run into its folder; only then is its checkpoint given up."""
    folder = session.runtime.folder
    if folder is None or session.runtime.rank != 0:
        return
    card = ModelCard(
        role=role,
        name=folder.path.resolve().name,
        n_clusters=model.n_clusters,
        bottleneck_width=session.config.bottleneck_width,
        backbone=inputs.backbone.spec,
        weights=inputs.backbone.weights,
        domains=inputs.data.samples.domain_names,
        stages=tuple(result.name for result in session.results),
        tune=session.config.tune,
        unit_features=model.encoder.unit_features,
    )
    save_model(folder.path / MODEL_FILE, model, session.results[-1].state["proportions"], card)
    folder.drop_checkpoint()


def _versions() -> dict[str, str]:
    packages = ("ucds", "torch", "lightning-fabric", "timm", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
