"""Opens what a run or a prediction works on: folders of images or files of embeddings, and the encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from ucds.backbones import Backbone, BackboneSpec, build_backbone, identity_backbone
from ucds.backbones.build import DEFAULT_WEIGHTS
from ucds.backbones.spec import IDENTITY
from ucds.choices import Role
from ucds.data.cache import default_cache_dir
from ucds.data.dataset import Dataset
from ucds.data.folders import Scan, scan_domains, scan_files, scan_folder
from ucds.data.images import ImageSamples
from ucds.data.layouts import check_layout
from ucds.data.memory import MemoryImages
from ucds.data.samples import Samples, subset
from ucds.data.vectors import VECTOR_SUFFIXES, VectorSamples, load_vectors
from ucds.data.views import ImageView, VectorView, View
from ucds.errors import InputError
from ucds.training.progress import Reporter, told_to


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
    def directory(self) -> Path:
        """The folder to use."""
        return self.folder or default_cache_dir()


@dataclass(frozen=True)
class EncoderOptions:
    """Encoder for images.

    Attributes:
        backbone: name that :func:`ucds.backbones.build_backbone` takes; ``"resnet18"`` if ``None``.
        weights: file of weights, ``"default"`` for published ones, or ``"none"`` for a random start.
        image_size: side of the square crop in pixels; the encoder's own if ``None``.
    """

    backbone: str | None = None
    weights: str = DEFAULT_WEIGHTS
    image_size: int | None = None

    def build(self) -> Backbone:
        """Build the encoder, anew at every call.

        Raises:
            InputError: the name is unknown, or the weights cannot be had or do not fit.
        """
        return build_backbone(self.backbone or "resnet18", weights=self.weights, input_size=self.image_size)


Predictable = str | Path | npt.NDArray[Any] | Sequence[Any]
"""What a trained model can be given, see :func:`open_for_prediction`."""


@dataclass(frozen=True)
class Inputs:
    """Samples with the encoder and views that fit them."""

    data: Dataset
    backbone: Backbone

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {
            "data": self.data.samples.fingerprint,
            "backbone": asdict(self.backbone.spec),
            "weights": self.backbone.weights,
        }


def open_for_training(
    path: Path,
    side: Role,
    encoder: EncoderOptions,
    cache: CacheOptions,
    reporter: Reporter,
    domains: Sequence[str] | None = None,
) -> Inputs:
    """Open a folder of images or a file of embeddings, and the encoder to train on it.

    Args:
        path: folder, ``.npy`` or ``.npz``; for a source it holds one folder (or array) a domain.
        side: side that trains.
        encoder: encoder for images.
        cache: place of decoded images.
        reporter: receives progress while images are decoded, and what is known of a published data set.
        domains: names of the domains to take; all if ``None``.

    Raises:
        InputError: the path or the encoder cannot be used, or a target comes in several domains.
    """
    if is_vector_file(path):
        if encoder != EncoderOptions():
            raise InputError("--backbone, --weights and --image-size are for images, not for embeddings")
        vectors = load_vectors(path)
        _check_domains(vectors, side, path)
        identity = identity_backbone(vectors.array.shape[1])
        return Inputs(Dataset(_of_domains(vectors, domains, path), VectorView()), identity)
    scan = scan_domains(path, domains) if side == "source" else scan_folder(path)
    report = check_layout(scan) if side == "source" else None
    for line in report.lines if report is not None else ():
        reporter.say(line)
    built = encoder.build()
    samples = _open_images(scan, built.spec, cache, reporter)
    return Inputs(Dataset(samples, view_for(built.spec)), built)


def open_for_prediction(
    source: Predictable, spec: BackboneSpec, side: Role, cache: CacheOptions, reporter: Reporter
) -> Dataset:
    """Open inputs for a model that is already trained.

    Args:
        source: folder of images, ``.npy`` or ``.npz`` file, list of image files, list of PIL images, array
            ``(n, d)`` of embeddings or ``(n, h, w, 3)`` of uint8 pixels, or torch dataset of any of these
            (of a tuple the first entry is taken).
        spec: description of the model's backbone.
        side: ``"source"`` if a folder holds one folder a domain.
        cache: place of decoded image files.
        reporter: receives progress while files are decoded.

    Raises:
        InputError: the input cannot be used, or its kind or width is not what the model takes.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if is_vector_file(path):
            vectors = load_vectors(path)
            _check_domains(vectors, side, path)
            return _vectors_for(vectors, spec, str(path))
        size = _image_size(spec, "a folder")
        scan = scan_domains(path) if side == "source" else scan_folder(path)
        return Dataset(_open_images(scan, spec, cache, reporter, size), view_for(spec))
    items: Any = source if isinstance(source, np.ndarray) else _as_list(source)
    first: Any = items[0] if len(items) else None
    if isinstance(first, str | Path):
        size = _image_size(spec, "image files")
        return Dataset(_open_images(scan_files(items), spec, cache, reporter, size), view_for(spec))
    if isinstance(first, Image.Image) or np.ndim(first) >= 2:
        return Dataset(MemoryImages(items, stored_size(spec)), view_for(spec))
    return _vectors_for(VectorSamples(np.asarray(items, dtype=np.float32)), spec, "the array")


def _as_list(source: Any) -> list[Any]:
    """Read a list, or a torch dataset item by item; classes that come with the items are left out."""
    items = [source[position] for position in range(len(source))]
    items = [item[0] if isinstance(item, tuple) else item for item in items]
    return [item.numpy() if isinstance(item, Tensor) else item for item in items]


def _vectors_for(vectors: VectorSamples, spec: BackboneSpec, what: str) -> Dataset:
    if spec.input_size is not None:
        raise InputError(f"this model takes images, not the embeddings in {what}")
    if spec.width != vectors.array.shape[1] and spec.name == IDENTITY:
        raise InputError(
            f"{what} has vectors of width {vectors.array.shape[1]}; the model takes {spec.width}"
        )
    return Dataset(vectors, VectorView())


def _image_size(spec: BackboneSpec, what: str) -> int:
    if spec.input_size is None:
        raise InputError(f"this model takes embeddings of width {spec.width} (.npy or .npz), not {what}")
    return stored_size(spec)


def is_vector_file(path: Path) -> bool:
    """Whether a path names embeddings rather than a folder of images."""
    return path.suffix.lower() in VECTOR_SUFFIXES


def view_for(spec: BackboneSpec) -> View:
    """Make the views that a backbone takes."""
    if spec.input_size is None:
        return VectorView()
    if spec.mean is None or spec.std is None:
        return ImageView(crop=spec.input_size)
    return ImageView(crop=spec.input_size, mean=spec.mean, std=spec.std)


def stored_size(spec: BackboneSpec) -> int:
    """Side of decoded images: 256 pixels for the usual crop of 224, and in proportion for others.

    Raises:
        InputError: the backbone does not take images.
    """
    if spec.input_size is None:
        raise InputError(f"backbone {spec.name!r} does not take images")
    return round(spec.input_size * 256 / 224)


def _open_images(
    scan: Scan, spec: BackboneSpec, cache: CacheOptions, reporter: Reporter, size: int | None = None
) -> ImageSamples:
    return ImageSamples.open(
        scan,
        cache.directory,
        size=size or stored_size(spec),
        limit_bytes=cache.limit_bytes,
        progress=told_to(reporter, "decode images"),
    )


def _check_domains(samples: Samples, side: Role, path: Path) -> None:
    if side == "target" and len(samples.domain_names) > 1:
        raise InputError(
            f"{path} holds {len(samples.domain_names)} arrays, but a target is one domain: give one array"
        )


def _of_domains(samples: Samples, domains: Sequence[str] | None, path: Path) -> Samples:
    if domains is None:
        return samples
    unknown = sorted(set(domains) - set(samples.domain_names))
    if unknown:
        known = ", ".join(map(repr, samples.domain_names))
        raise InputError(f"{path} has no domain {', '.join(map(repr, unknown))}; it has {known}")
    chosen = [samples.domain_names.index(name) for name in domains]
    return subset(samples, np.flatnonzero(np.isin(samples.domain, chosen)))
