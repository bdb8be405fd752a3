"""Writes an encoder into a folder of features, and builds it again from there."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from ucds.backbones import Backbone
from ucds.backbones.build import rebuild_backbone
from ucds.backbones.spec import MODULE, BackboneSpec
from ucds.data.features import ENCODER_FILE, FeatureFolder, Manifest
from ucds.errors import DamagedFileError, InputError, first_problem
from ucds.files import write_atomically
from ucds.models import state_digest

_SPEC = TypeAdapter(BackboneSpec)


def save_encoder(folder: Path, backbone: Backbone) -> None:
    """Write the weights of an encoder into a folder of features, all of them or none."""
    state = backbone.module.state_dict().items()
    data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in state})
    write_atomically(folder / ENCODER_FILE, lambda file: file.write(data))


def load_encoder(folder: Path, manifest: Manifest) -> Backbone:
    """Build the encoder of a folder of features, with its weights.

    Raises:
        DamagedFileError: the weights are missing or are not those that the features were computed with.
    """
    path, spec = folder / ENCODER_FILE, _spec_of(manifest, folder)
    try:
        built = rebuild_backbone(spec)
        built.module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise DamagedFileError(f"{path} cannot be read as the weights of the encoder ({error})") from None
    if state_digest(built.module) != manifest.weights:
        raise DamagedFileError(f"{path} holds other weights than those that the features were computed with")
    return Backbone(built.module, built.spec, manifest.origin)


def require_encoder(features: FeatureFolder, backbone: Backbone) -> None:
    """Make sure that features are those of the encoder of a model.

    Raises:
        InputError: they are those of another encoder.
    """
    manifest = features.manifest
    same = backbone.spec.name != MODULE and _spec_of(manifest, features.folder) == backbone.spec
    if not same or manifest.weights != state_digest(backbone.module):
        raise InputError(
            f"{features.folder} holds features of another encoder than this model's: compute them anew"
        )


def _spec_of(manifest: Manifest, folder: Path) -> BackboneSpec:
    try:
        return _SPEC.validate_json(json.dumps(manifest.backbone))
    except ValidationError as error:
        raise DamagedFileError(f"{folder} does not describe its encoder: {first_problem(error)}") from None
