"""Writes and reads a finished model: head, encoder, their description, and the side that trained them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from safetensors import SafetensorError
from safetensors.numpy import save

from ucds.choices import MOST_CLUSTERS, Method, Precision, Role, Tune
from ucds.encoders.encoder import Encoder, IdentityEncoder, ViewpointEncoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import FUNCTION, IDENTITY, LENGTHS, EncoderSpec
from ucds.errors import DamagedFileError, InputError, UserError, brief, first_problem, one_line
from ucds.extras import require_extra
from ucds.files import digest_of, make_private, write_atomically
from ucds.heads import Head
from ucds.math.arrays import FloatArray
from ucds.math.privacy import Guarantee
from ucds.received import read_tensors
from ucds.showing import shows
from ucds.training.run_folder import MODEL_FILE, require_model

FORMAT = "ucds-model/4"

Arrays = dict[str, NDArray[Any]]

_ENCODER = "encoder."  # what the names of its arrays begin with
_REMEDY = "take it from a backup; or delete it, and train again with `resume=True`"
_LOWER = "lower the learning rate, or look for extreme values in the data"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Making:
    """How a model was made: what was asked for, and what computed it; ``run.json`` has the same entries."""

    method: Method
    settings: dict[str, Any]  # of the method, by name; those of the other side left out
    clusters: int | str  # number, or text that asked for a choice
    seed: int
    precision: Precision  # of forward passes
    versions: dict[str, str]  # of Python and of each package that computed something, by name


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class ModelCard:
    """Description of a model, stored in its file as JSON."""

    role: Role  # side that trained the model; a client must never hold one of role "source"
    name: str  # of the run that made the model; a provider signs its labels with this name
    n_clusters: int  # K
    bottleneck_width: int  # of bottleneck features and prototypes, d_f
    encoder: EncoderSpec
    weights: str  # origin of those that the encoder has, or started from
    domains: tuple[str, ...]  # names of those that the model was trained on, in the order of the proportions
    stages: tuple[str, ...]  # names of those that the model went through, in order
    making: Making  # of a reviewed or updated model: that of the one it goes back to
    tune: Tune = "full"  # "head" if the encoder stayed frozen
    unit_features: bool = False  # whether the encoder's features are brought to unit length
    recentres: bool = False  # whether it labels a set of samples better from the set's own mean
    privacy: Guarantee | None = None  # of differential privacy


_CARD = TypeAdapter(ModelCard)


@shows("fingerprint", "card")
@dataclass(frozen=True)
class StoredModel:
    """A finished model with its description."""

    card: ModelCard
    head: Head  # layers above the encoder
    encoder: Encoder  # from inputs to features
    proportions: FloatArray  # (D, K) sizes of the clusters in each training domain

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any prototype, and so with what a cluster means."""
        return self.head.fingerprint

    @property
    def arrays(self) -> Arrays:
        """All arrays in the model file, by name."""
        named = {
            "head.weight": self.head.weight,
            "head.bias": self.head.bias,
            "head.prototypes": self.head.prototypes,
            "proportions": self.proportions,
        } | {f"{_ENCODER}{name}": array for name, array in self.encoder.saved().items()}
        return {name: np.ascontiguousarray(array) for name, array in named.items()}


def save_model(run: Path, stored: StoredModel) -> None:
    """Write the model file of a run folder, all of it or none, if all its numbers are finite."""
    arrays = stored.arrays
    if (name := _not_finite(arrays)) is not None:
        raise InputError(f"the model is not written: {name} holds NaN or infinity; {_LOWER}")
    card = json.dumps(asdict(stored.card))
    metadata = {"format": FORMAT, "card": card, "digest": digest_of(card.encode(), arrays_digest(arrays))}
    parts = _in_order(save(arrays, metadata=metadata))
    make_private(run)
    write_atomically(run / MODEL_FILE, lambda file: file.writelines(parts))


def _in_order(content: bytes) -> tuple[bytes, memoryview]:
    """Sort the header of a safetensors file, whose order is random, so that equal models give equal files."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:start]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header, memoryview(content)[start:]


def load_model(run: Path, *, role: Role | None = None, encoder: Encoder | None = None) -> StoredModel:
    """Read the model of a finished run, as :func:`ucds.training.loaded.load` does, with the same errors."""
    path = require_model(run)
    card, arrays = _read(path)
    if role is not None and card.role != role:
        why = "it is made by `ucds train-source`" if role == "source" else "a provider answers with labels"
        raise InputError(
            f"{run} holds a model of role '{card.role}', but only one of role {brief(role)} may be used "
            f"here: {why}"
        )
    try:
        head, proportions = _head_of(card, arrays)
        saved = {name.removeprefix(_ENCODER): array for name, array in arrays.items()}
        found = make_encoder(card.encoder, card.weights, saved, path, encoder)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever an edited card may lead to
        reason = f"it holds no {error}" if isinstance(error, KeyError) else one_line(error)
        raise DamagedFileError(f"{path} does not fit its own description: {reason}") from None
    return StoredModel(card, head, found, proportions)


def _head_of(card: ModelCard, arrays: Arrays) -> tuple[Head, FloatArray]:
    """Take the head and the proportions out of the arrays of a file."""
    width, k = card.bottleneck_width, card.n_clusters
    shapes = {
        "head.weight": (width, card.encoder.width),
        "head.bias": (width,),
        "head.prototypes": (width, k),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.float32:
            raise ValueError(f"its {name} is not float32 of shape {shape}")
    sizes = arrays["proportions"]
    if k > MOST_CLUSTERS or sizes.dtype != np.float32 or sizes.ndim != 2 or sizes.shape[1] != k:
        raise ValueError("its proportions do not fit its number of clusters, or there are too many")
    weight, bias, prototypes = (arrays[name] for name in shapes)
    return Head(weight, bias, prototypes, card.unit_features), sizes


def make_encoder(
    spec: EncoderSpec,
    weights: str,
    saved: Mapping[str, NDArray[Any]],
    path: Path,
    given: Encoder | None = None,
) -> Encoder:
    """Make an encoder again, of the arrays that :meth:`ucds.encoders.encoder.Encoder.saved` returned.

    The path is that of their file, for messages. An encoder of the caller's own must be ``given``.
    """
    if given is not None and spec.name != FUNCTION:
        raise InputError(f"{path} holds its encoder, {spec.called}: give no encoder of your own")
    if "network" in saved:
        require_extra("torch", f"{path}, which holds a network,")
        from ucds.networks.stored import stored_network

        return stored_network(spec, weights, saved["network"].tobytes(), path, given)
    if spec.name == FUNCTION:
        if given is None:
            raise InputError(
                f"the encoder of {path} is a function of your own: "
                "open the run by `ucds.load(.., encoder=..)`, and ask the model that it returns"
            )
        return given
    if spec.name == IDENTITY:
        return IdentityEncoder(spec.width, spec.columns)
    if spec.name == LENGTHS:
        return ViewpointEncoder(saved["point"].reshape(spec.width), spec.columns)
    return GraphEncoder(saved["graph"].tobytes(), spec, weights)


def _read(path: Path) -> tuple[ModelCard, Arrays]:
    try:
        arrays, metadata = read_tensors(path, "np")
    except OSError as error:
        raise DamagedFileError(f"{path} is not readable ({error.strerror or error})") from None
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is damaged ({error}): {_REMEDY}") from None
    if (found := metadata.get("format")) != FORMAT:
        raise DamagedFileError(f"{path} is not a model of this version (format {found!r}, not {FORMAT!r})")
    try:
        card = _CARD.validate_json(metadata.get("card", ""))
    except ValidationError as error:
        raise DamagedFileError(f"{path} does not describe its model: {first_problem(error)}") from None
    if metadata.get("digest") != digest_of(metadata["card"].encode(), arrays_digest(arrays)):
        raise DamagedFileError(f"{path} is damaged (its digest does not match): {_REMEDY}")
    if (name := _not_finite(arrays)) is not None:
        raise DamagedFileError(f"{path} cannot be used: its {name} holds NaN or infinity; train it again")
    return card, arrays


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Compute the digest of arrays, with their names, shapes and types, as hexadecimal digits."""
    parts: list[bytes | memoryview] = []
    for name, array in sorted(arrays.items()):
        whole = np.ascontiguousarray(array)
        parts += f"{name} {whole.shape} {whole.dtype}".encode(), whole.reshape(-1).view(np.uint8).data
    return digest_of(*parts).encode()


def _not_finite(arrays: Mapping[str, NDArray[Any]]) -> str | None:
    """Name the first array that holds NaN or infinity; ``None`` if all are finite."""
    return next((name for name, array in arrays.items() if not np.isfinite(array).all()), None)
