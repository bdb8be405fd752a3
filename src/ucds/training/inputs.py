"""Opens the inputs of a run or a prediction: images or embeddings, with their views and the encoder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD, Role
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings, refuse_unread
from ucds.data.columns import Pictures
from ucds.data.dataset import Dataset, ImageView, View
from ucds.data.features import ENCODER_FILE, FeatureFolder, Manifest
from ucds.data.folders import Scan
from ucds.data.images import ImageSamples, MemoryImages
from ucds.data.samples import Samples
from ucds.data.sources import Source, find_samples
from ucds.data.vectors import in_order
from ucds.encoders.encoder import Encoder, IdentityEncoder, ViewpointEncoder
from ucds.encoders.spec import FUNCTION, VECTORS, EncoderSpec
from ucds.errors import DamagedFileError, InputError, first_problem
from ucds.files import make_private
from ucds.received import read_tensors
from ucds.training.model_file import make_encoder
from ucds.training.options import Compute, EncoderOptions, default_cache_dir

_SPEC = TypeAdapter(EncoderSpec)
_DIMENSIONS = 10  # effective ones, up to which the lengths of vectors tell much of them
_FAR = 10  # radii from zero, beyond which the directions of all vectors are alike
_SEEN = 10**7  # numbers in the vectors, 1,000 at most, that decide


@dataclass(frozen=True)
class Inputs:
    """Inputs of a training run: samples with their views, and the encoder that takes them."""

    data: Dataset
    encoder: Encoder

    @property
    def identity(self) -> dict[str, Any]:
        """Description of the inputs; a resumed run must have the same inputs."""
        return {
            "data": self.data.samples.fingerprint,
            "encoder": asdict(self.encoder.spec),
            "weights": self.encoder.weights,
        }


def open_for_training(
    found: Scan | Samples | Pictures,
    encoder: EncoderOptions | Encoder,
    compute: Compute,
    settings: MethodSettings | None = None,
) -> Inputs:
    """Open samples that :func:`ucds.data.sources.find_samples` has found, and the encoder to train on them.

    They are for a training with these settings; with any if ``None``. An encoder of the caller's own takes
    the samples as they are, images if it has an input size.
    """
    tune, learns = settings and settings.tune, not isinstance(settings, ConsensusSettings)
    if isinstance(encoder, Encoder):
        images = isinstance(found, Scan | Pictures)
        if images != (encoder.spec.input_size is not None):
            kind = "images" if images else "embeddings"
            raise InputError(
                f"your encoder has {'no' if images else 'an'} input_size; the samples are {kind}"
            )
        compute.place(encoder, learns=learns)
        if isinstance(found, Scan | Pictures):
            return Inputs(_open_images(found, encoder.spec, compute), encoder)
        return Inputs(Dataset(found), encoder)
    if isinstance(found, Scan | Pictures):
        chosen = encoder.network(compute) if tune == "full" else encoder.find(compute)
        compute.place(chosen, learns=learns)  # before images are decoded
        return Inputs(_open_images(found, chosen.spec, compute), chosen)
    if encoder != EncoderOptions():
        what = "embeddings" if found.kind == "embeddings" else "features, which name their encoder"
        raise InputError(f"`backbone`, `weights` and `image_size` are for images, not for {what}")
    if not isinstance(found, FeatureFolder):
        if isinstance(settings, PCDSettings):  # the head alone is trained
            refuse_unread(settings.model_copy(update={"tune": "head"}), "source")
        known = see_vectors(found)
    elif tune == "full":
        where = f"{found.folder} holds features"
        raise InputError(f'`tune="full"` trains the encoder, and {where}: give the images')
    else:
        known = _load_encoder(found.folder, found.manifest)
    compute.place(known, learns=learns)
    return Inputs(Dataset(found), known)


def open_for_prediction(source: Source, encoder: Encoder, side: Role, compute: Compute) -> Dataset:
    """Open samples for a trained model with some encoder; see :func:`ucds.data.sources.find_samples`.

    A folder for the side "source" holds one folder per domain. Samples whose kind, width or columns are not
    what the model takes are refused.
    """
    what = str(source) if isinstance(source, str | Path) else "the input"
    found, spec = find_samples(source, by_domain=side == "source"), encoder.spec
    compute.place(encoder)
    if isinstance(found, Scan | Pictures):
        if spec.input_size is None:
            raise InputError(f"this model takes embeddings of width {spec.takes}, not the images in {what}")
        return _open_images(found, spec, compute)
    if spec.input_size is not None and isinstance(found, FeatureFolder):
        _require_encoder(found, encoder)
    elif spec.input_size is not None:
        raise InputError(f"this model takes images, not the embeddings in {what}")
    elif (
        (found.columns is None or spec.columns is None)
        and spec.name in VECTORS
        and spec.takes != (width := _width(found))
    ):
        raise InputError(f"{what} has vectors of width {width}; the model takes {spec.takes}")
    return Dataset(in_order(found, spec.columns))


def see_vectors(samples: Samples) -> Encoder:
    """Choose the encoder of vectors: one that keeps lengths if they tell something, or else the identity.

    Embeddings are directions in many dimensions. Most tables have few dimensions, where directions alone do
    not separate clumps on a line; see ``docs/consensus.md``.
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
        return IdentityEncoder(width, samples.columns)
    return ViewpointEncoder(np.append(middle, -radius), samples.columns)


def _width(vectors: Samples) -> int:
    return int(vectors.read(np.zeros(1, np.int64)).shape[1])


def view_for(spec: EncoderSpec) -> View:
    """Make the views that an encoder takes."""
    if spec.input_size is None:
        return View()
    return ImageView(spec.input_size, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD)


def _open_images(found: Scan | Pictures, spec: EncoderSpec, compute: Compute) -> Dataset:
    size, view = spec.stored_size, view_for(spec)
    if isinstance(found, Pictures):
        return Dataset(MemoryImages(found, size), view)
    cache = compute.cache or default_cache_dir()
    make_private(cache)
    progress = partial(compute.reporter.show, "decode images")
    samples = ImageSamples(found, cache, size=size, limit_bytes=compute.images_bytes, progress=progress)
    return Dataset(samples, view)


def _load_encoder(folder: Path, manifest: Manifest) -> Encoder:
    """Find the encoder of a folder of features, with the weights by which they were computed."""
    path = folder / ENCODER_FILE
    try:
        saved, _ = read_tensors(path, "np")
        encoder = make_encoder(_spec_of(manifest, folder), manifest.origin, saved, path)
    except (OSError, SafetensorError, KeyError) as error:
        raise DamagedFileError(f"{path} cannot be read as the encoder of the features ({error})") from None
    if encoder.digest != manifest.weights:
        raise DamagedFileError(f"{path} holds an encoder other than the one that computed the features")
    return encoder


def _require_encoder(features: FeatureFolder, encoder: Encoder) -> None:
    """Make sure that features are those of the encoder of a model."""
    manifest = features.manifest
    same = encoder.spec.name != FUNCTION and _spec_of(manifest, features.folder) == encoder.spec
    if not same or manifest.weights != encoder.digest:
        raise InputError(
            f"{features.folder} holds features of an encoder other than this model's: compute them again"
        )


def _spec_of(manifest: Manifest, folder: Path) -> EncoderSpec:
    try:
        return _SPEC.validate_json(json.dumps(manifest.encoder))
    except ValidationError as error:
        raise DamagedFileError(f"{folder} does not describe its encoder: {first_problem(error)}") from None
