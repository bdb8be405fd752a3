"""Opens the inputs of a run or a prediction: images or embeddings, with their views and the encoder."""

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
    """Place of decoded images and frozen features.

    Attributes:
        folder: folder on disk; the user's cache folder if ``None``.
        limit_bytes: bound on decoded images in bytes; images beyond it are decoded at every read.
    """

    folder: Path | None = None
    limit_bytes: int | None = None

    @property
    def directory(self) -> Path:
        """Folder to use: the one given, or the user's cache folder."""
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
            InputError: the name is unknown, or the weights cannot be loaded or do not fit.
        """
        return build_backbone(self.backbone or "resnet18", weights=self.weights, input_size=self.image_size)


Predictable = str | Path | npt.NDArray[Any] | Sequence[Any]
"""Inputs of a trained model, see :func:`open_for_prediction`."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of a training run.

    Attributes:
        data: samples and their views.
        backbone: encoder that takes them.
    """

    data: Dataset
    backbone: Backbone

    @property
    def identity(self) -> dict[str, Any]:
        """Description of the inputs; a resumed run must have the same."""
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
        path: folder, ``.npy`` or ``.npz`` file; for a source it holds one folder (or array) a domain.
        side: side that trains.
        encoder: encoder for images.
        cache: place of decoded images.
        reporter: receives progress while images are decoded, and remarks on known data sets.
        domains: names of the domains to take; all if ``None``.

    Raises:
        InputError: the path or the encoder cannot be used, or a target comes in several domains.
    """
    if is_vector_file(path):
        if encoder != EncoderOptions():
            raise InputError("--backbone, --weights and --image-size are for images, not for embeddings")
        vectors = _load_vectors(path, side)
        identity = identity_backbone(vectors.array.shape[1])
        return Inputs(Dataset(_of_domains(vectors, domains, path), VectorView()), identity)
    scan = scan_domains(path, domains) if side == "source" else scan_folder(path)
    for line in check_layout(scan) if side == "source" else ():
        reporter.say(line)
    built = encoder.build()
    return Inputs(_open_images(scan, built.spec, cache, reporter), built)


def open_for_prediction(
    source: Predictable, spec: BackboneSpec, side: Role, cache: CacheOptions, reporter: Reporter
) -> Dataset:
    """Open inputs for a model that is already trained.

    Args:
        source: folder of images, ``.npy`` or ``.npz`` file, list of image files, list of PIL images, array
            ``(n, d)`` of embeddings or ``(n, h, w, 3)`` of uint8 pixels, or torch dataset of such items
            (or of tuples that begin with one).
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
            return _vectors_for(_load_vectors(path, side), spec, str(path))
        _check_takes_images(spec, "a folder")
        scan = scan_domains(path) if side == "source" else scan_folder(path)
        return _open_images(scan, spec, cache, reporter)
    items = _items_of(source)
    if isinstance(items[0], str | Path):
        _check_takes_images(spec, "image files")
        return _open_images(scan_files(items), spec, cache, reporter)
    if isinstance(items[0], Image.Image) or np.ndim(items[0]) >= 2:
        _check_takes_images(spec, "images")
        return Dataset(MemoryImages(items, stored_size(spec)), view_for(spec))
    try:
        array = np.asarray(items, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError("the input holds neither images, image files nor embeddings of one width") from None
    return _vectors_for(VectorSamples(array), spec, "the array")


def _items_of(source: Any) -> Any:
    """Return an array as it is; list the items of all else, without the classes that come with them."""
    try:
        n = len(source)
    except TypeError:
        raise InputError(
            f"a model takes several samples at a time, not one {type(source).__name__}"
        ) from None
    if n == 0:
        raise InputError("there are no samples to predict")
    if isinstance(source, np.ndarray):
        return source
    items = [source[position] for position in range(n)]
    items = [item[0] if isinstance(item, tuple) else item for item in items]
    return [item.detach().cpu().numpy() if isinstance(item, Tensor) else item for item in items]


def _vectors_for(vectors: VectorSamples, spec: BackboneSpec, what: str) -> Dataset:
    if spec.input_size is not None:
        raise InputError(f"this model takes images, not the embeddings in {what}")
    if spec.width != vectors.array.shape[1] and spec.name == IDENTITY:
        raise InputError(
            f"{what} has vectors of width {vectors.array.shape[1]}; the model takes {spec.width}"
        )
    return Dataset(vectors, VectorView())


def _check_takes_images(spec: BackboneSpec, what: str) -> None:
    if spec.input_size is None:
        raise InputError(f"this model takes embeddings of width {spec.width} (.npy or .npz), not {what}")


def is_vector_file(path: Path) -> bool:
    """Return whether a path names embeddings rather than a folder of images."""
    return path.suffix.lower() in VECTOR_SUFFIXES


def view_for(spec: BackboneSpec) -> View:
    """Make the views that a backbone takes."""
    if spec.input_size is None:
        return VectorView()
    if spec.mean is None or spec.std is None:
        return ImageView(crop=spec.input_size)
    return ImageView(crop=spec.input_size, mean=spec.mean, std=spec.std)


def stored_size(spec: BackboneSpec) -> int:
    """Return the side of decoded images in pixels: 256 for a crop of 224, and in proportion for others.

    Raises:
        InputError: the backbone does not take images.
    """
    if spec.input_size is None:
        raise InputError(f"backbone {spec.name!r} does not take images")
    return round(spec.input_size * 256 / 224)


def _open_images(scan: Scan, spec: BackboneSpec, cache: CacheOptions, reporter: Reporter) -> Dataset:
    size, progress = stored_size(spec), told_to(reporter, "decode images")
    samples = ImageSamples.open(
        scan, cache.directory, size=size, limit_bytes=cache.limit_bytes, progress=progress
    )
    return Dataset(samples, view_for(spec))


def _load_vectors(path: Path, side: Role) -> VectorSamples:
    vectors = load_vectors(path)
    arrays = len(vectors.domain_names)
    if side == "target" and arrays > 1:
        raise InputError(f"{path} holds {arrays} arrays, but a target is one domain: give one array")
    return vectors


def _of_domains(samples: Samples, domains: Sequence[str] | None, path: Path) -> Samples:
    if domains is None:
        return samples
    unknown = sorted(set(domains) - set(samples.domain_names))
    if unknown or not domains:
        known = ", ".join(map(repr, samples.domain_names))
        raise InputError(
            f"{path} has no domain {', '.join(map(repr, unknown)) or 'of that name'}; it has {known}"
        )
    chosen = [samples.domain_names.index(name) for name in domains]
    return subset(samples, np.flatnonzero(np.isin(samples.domain, chosen)))
