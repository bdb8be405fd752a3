"""Opens the inputs of a run or a prediction: images or embeddings, with their views and the encoder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError

from ucds.choices import Role, Tune
from ucds.data.columns import Pictures
from ucds.data.dataset import IMAGENET_MEAN, IMAGENET_STD, Dataset, ImageView, View
from ucds.data.features import ENCODER_FILE, FeatureFolder, Manifest
from ucds.data.folders import Scan
from ucds.data.images import ImageSamples, MemoryImages
from ucds.data.samples import Samples
from ucds.data.sources import Source, find_samples
from ucds.data.vectors import in_order
from ucds.encoders.spec import FUNCTION, LENGTHS, VECTORS, EncoderSpec
from ucds.errors import DamagedFileError, InputError, first_problem
from ucds.files import make_private
from ucds.networks.build import StoredBackbone
from ucds.networks.spec import Backbone, Viewpoint, identity_backbone, tensors_digest
from ucds.networks.weight_files import read_tensors
from ucds.training.options import Compute, EncoderOptions, default_cache_dir

_SPEC = TypeAdapter(EncoderSpec)
_DIMENSIONS = 10  # effective ones, up to which the lengths of vectors tell much of them
_FAR = 10  # radii from zero, beyond which the directions of all vectors are alike
_SEEN = 10**7  # numbers in the vectors, 1,000 at most, that decide


@dataclass(frozen=True)
class Inputs:
    """Inputs of a training run: samples with their views, and the encoder that takes them."""

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
    found: Scan | Samples | Pictures, encoder: EncoderOptions, compute: Compute, tune: Tune | None = None
) -> Inputs:
    """Open samples that :func:`ucds.data.sources.find_samples` has found, and the encoder to train on them.

    The part ``tune`` of the model is to be trained; any if ``None``.

    Raises:
        InputError: the samples or the encoder cannot be used, or the encoder of features is to be trained.
        DamagedFileError: a folder of features is damaged.
    """
    if isinstance(found, Scan | Pictures):
        built = encoder.build(compute.cache)
        return Inputs(_open_images(found, built.spec, compute), built)
    if encoder != EncoderOptions():
        what = "embeddings" if found.kind == "embeddings" else "features, which name their encoder"
        raise InputError(f"--backbone, --weights and --image-size are for images, not for {what}")
    if isinstance(found, FeatureFolder):
        if tune == "full":
            where = f"{found.folder} holds features"
            raise InputError(f"--tune full trains the encoder, and {where}: give the images")
        return Inputs(Dataset(found), _load_encoder(found.folder, found.manifest))
    return Inputs(Dataset(found), see_vectors(found))


def open_for_prediction(source: Source, backbone: Backbone, side: Role, compute: Compute) -> Dataset:
    """Open samples for a trained model with some encoder; see :func:`ucds.data.sources.find_samples`.

    A folder for the side "source" holds one folder a domain.

    Raises:
        InputError: the samples cannot be used, or their kind, width or columns are not what the model takes.
    """
    what = str(source) if isinstance(source, str | Path) else "the input"
    found, spec = find_samples(source, by_domain=side == "source"), backbone.spec
    if isinstance(found, Scan | Pictures):
        if spec.input_size is None:
            raise InputError(f"this model takes embeddings of width {spec.takes}, not the images in {what}")
        return _open_images(found, spec, compute)
    if spec.input_size is not None and isinstance(found, FeatureFolder):
        _require_encoder(found, backbone)
    elif spec.input_size is not None:
        raise InputError(f"this model takes images, not the embeddings in {what}")
    elif (
        (found.columns is None or spec.columns is None)
        and spec.name in VECTORS
        and spec.takes != (width := _width(found))
    ):
        raise InputError(f"{what} has vectors of width {width}; the model takes {spec.takes}")
    return Dataset(in_order(found, spec.columns))


def see_vectors(samples: Samples) -> Backbone:
    """Choose the backbone of vectors: one that keeps lengths where they tell something, or the identity.

    Embeddings are directions in many dimensions. In few dimensions, as most tables have them, directions
    alone do not tell clumps on a line apart; see ``docs/consensus.md``.
    """
    width = _width(samples)
    rows = np.linspace(0, len(samples) - 1, min(len(samples), 1000, _SEEN // width + 1)).astype(np.int64)
    vectors = samples.read(rows).astype(np.float64)
    apart = np.square(vectors - np.median(vectors, axis=0)).sum(1)
    middle = vectors[apart <= np.quantile(apart, 0.95)].mean(0)  # whatever a few far rows are
    vectors -= middle
    squares = np.square(vectors).sum(1)
    radius = float(np.sqrt(np.minimum(squares, np.quantile(squares, 0.95)).mean()))
    many = squares.sum() ** 2 > _DIMENSIONS * np.square(vectors @ vectors.T).sum()
    if radius == 0 or (many and np.linalg.norm(middle) < _FAR * radius):
        return identity_backbone(width, samples.columns)
    seen = Viewpoint(width + 1)
    seen.point = torch.from_numpy(np.append(middle, -radius))
    return Backbone(seen, EncoderSpec(LENGTHS, width + 1, columns=samples.columns), "none (identity)")


def _width(vectors: Samples) -> int:
    return int(vectors.read(np.zeros(1, np.int64)).shape[1])


def view_for(spec: EncoderSpec) -> View:
    """Make the views that a backbone takes."""
    if spec.input_size is None:
        return View()
    return ImageView(spec.input_size, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD)


def stored_size(spec: EncoderSpec) -> int:
    """Return the side of decoded images in pixels: 256 for a crop of 224, and in proportion for others."""
    if spec.input_size is None:
        raise InputError(f"backbone {spec.name!r} does not take images")
    return round(spec.input_size * 256 / 224)


def _open_images(found: Scan | Pictures, spec: EncoderSpec, compute: Compute) -> Dataset:
    size, view = stored_size(spec), view_for(spec)
    if isinstance(found, Pictures):
        return Dataset(MemoryImages(found, size), view)
    cache = compute.cache or default_cache_dir()
    make_private(cache)
    progress = partial(compute.reporter.show, "decode images")
    samples = ImageSamples(found, cache, size=size, limit_bytes=compute.images_bytes, progress=progress)
    return Dataset(samples, view)


def _load_encoder(folder: Path, manifest: Manifest) -> Backbone:
    """Find the encoder of a folder of features, with the weights that the features were computed with."""
    path = folder / ENCODER_FILE
    try:
        state, _ = read_tensors(path)
    except (OSError, SafetensorError) as error:
        raise DamagedFileError(f"{path} cannot be read as the weights of the encoder ({error})") from None
    if tensors_digest(state) != manifest.weights:
        raise DamagedFileError(f"{path} holds other weights than those that the features were computed with")
    return StoredBackbone(_spec_of(manifest, folder), manifest.origin, state, path)


def _require_encoder(features: FeatureFolder, backbone: Backbone) -> None:
    """Make sure that features are those of the encoder of a model."""
    manifest = features.manifest
    same = backbone.spec.name != FUNCTION and _spec_of(manifest, features.folder) == backbone.spec
    if not same or manifest.weights != backbone.digest:
        raise InputError(
            f"{features.folder} holds features of another encoder than this model's: compute them anew"
        )


def _spec_of(manifest: Manifest, folder: Path) -> EncoderSpec:
    try:
        return _SPEC.validate_json(json.dumps(manifest.backbone))
    except ValidationError as error:
        raise DamagedFileError(f"{folder} does not describe its encoder: {first_problem(error)}") from None
