"""Writes and reads a finished model: weights, description of the network, and side that trained it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ucds.choices import MOST_CLUSTERS, Role, Tune
from ucds.encoders.spec import EncoderSpec
from ucds.errors import DamagedFileError, InputError, UserError, first_problem, one_line
from ucds.files import digest_of, make_private, write_atomically
from ucds.math.privacy import Guarantee
from ucds.networks.build import StoredBackbone
from ucds.networks.model import ClusteringModel
from ucds.networks.spec import Backbone, identity_backbone, tensors_digest
from ucds.networks.weight_files import read_tensors
from ucds.training.run_folder import MODEL_FILE, require_model

FORMAT = "ucds-model/2"

_BACKBONE = "model.encoder.backbone."  # what the names of its tensors begin with
_REMEDY = "take it from a backup; or delete it, and train again with --resume"
_LOWER = "lower the learning rate, or look for extreme values in the data"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class ModelCard:
    """Description of a model, stored in its file as JSON.

    Attributes:
        role: side that trained the model. A client must never hold a model of role "source".
        name: name of the run that made the model; a provider signs its labels with this name.
        n_clusters: number of clusters, K.
        bottleneck_width: width of features and prototypes, d_f.
        backbone: description of the encoder.
        weights: origin of the weights that the encoder started from.
        domains: names of the domains that the model was trained on, in the order of the proportions.
        stages: names of the stages that the model went through, in order.
        tune: ``"full"`` if the whole encoder was trained, ``"head"`` if its backbone stayed frozen.
        unit_features: whether the backbone's features are brought to unit length.
        recentres: whether the model labels a set of samples better from the set's own mean.
        privacy: guarantee of differential privacy; ``None`` without one.
    """

    role: Role
    name: str
    n_clusters: int
    bottleneck_width: int
    backbone: EncoderSpec
    weights: str
    domains: tuple[str, ...]
    stages: tuple[str, ...]
    tune: Tune = "full"
    unit_features: bool = False
    recentres: bool = False
    privacy: Guarantee | None = None


_CARD = TypeAdapter(ModelCard)


@dataclass(frozen=True)
class StoredModel:
    """A finished model with its description.

    Attributes:
        card: description of the model.
        head: layers above the backbone, in evaluation mode.
        backbone: encoder without its bottleneck.
        proportions: ``(D, K)`` sizes of the clusters in each training domain.
    """

    card: ModelCard
    head: ClusteringModel
    backbone: Backbone
    proportions: Tensor

    @classmethod
    def of(cls, card: ModelCard, model: ClusteringModel, proportions: Tensor) -> Self:
        """Describe a whole network in evaluation mode."""
        backbone = Backbone(model.encoder.backbone, card.backbone, card.weights)
        return cls(card, model.head(), backbone, proportions)

    @cached_property
    def model(self) -> ClusteringModel:
        """Whole network, in evaluation mode."""
        return self.head.on(self.backbone).eval()

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any prototype: numbers of clusters mean the same."""
        return digest_of(self.head.prototypes.detach().cpu().numpy().tobytes())[:12]


def save_model(run: Path, stored: StoredModel) -> None:
    """Write the model file of a run folder, all of it or none.

    Raises:
        InputError: a weight is NaN or infinite.
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    named = {f"model.{name}": tensor for name, tensor in stored.head.state_dict().items()}
    named |= {f"{_BACKBONE}{name}": tensor for name, tensor in stored.backbone.state().items()}
    named["proportions"] = stored.proportions
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    if (name := _not_finite(tensors)) is not None:
        raise InputError(f"the model is not written: {name} holds NaN or infinity; {_LOWER}")
    card = json.dumps(asdict(stored.card))
    metadata = {"format": FORMAT, "card": card, "digest": _digest(card, tensors)}
    data = save(tensors, metadata=metadata)
    make_private(run)
    write_atomically(run / MODEL_FILE, lambda file: file.write(data))


def load_model(run: Path, *, role: Role | None = None, backbone: Backbone | None = None) -> StoredModel:
    """Read the model of a finished run, as :func:`ucds.training.loaded.load` does, with the same errors."""
    path = require_model(run)
    card, tensors = _read(path)
    if role is not None and card.role != role:
        raise InputError(
            f"{run} holds a model of role '{card.role}', and only one of role '{role}' may be used here: "
            "source models stay with their owner, who answers with labels"
        )
    own = {
        name.removeprefix(_BACKBONE): tensors.pop(name) for name in [*tensors] if name.startswith(_BACKBONE)
    }
    try:
        proportions = tensors.pop("proportions")
        # First of all, because a network of the size that the card names may not fit into memory.
        linear, width = tensors["model.encoder.bottleneck.linear.weight"], card.bottleneck_width
        if tensors["model.prototypes"].shape != (width, card.n_clusters):
            raise ValueError("the prototypes have another shape")
        if linear.shape != (width, card.backbone.width) or card.n_clusters > MOST_CLUSTERS:
            raise ValueError("the bottleneck has another shape, or there are too many clusters")
        head = ClusteringModel(
            identity_backbone(card.backbone.width),
            card.n_clusters,
            bottleneck_width=card.bottleneck_width,
            unit_features=card.unit_features,
        )
        head.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
        if backbone is None:
            encoder: Backbone = StoredBackbone(card.backbone, card.weights, own, path)
        else:
            backbone.module.load_state_dict(own)
            encoder = Backbone(backbone.module, card.backbone, card.weights)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # whatever building a network from an edited card may raise
        reason = f"it holds no {error}" if isinstance(error, KeyError) else one_line(error)
        raise DamagedFileError(f"{path} does not fit its own description: {reason}") from None
    return StoredModel(card, head.eval(), encoder, proportions)


def _read(path: Path) -> tuple[ModelCard, dict[str, Tensor]]:
    try:
        tensors, metadata = read_tensors(path)
    except OSError as error:
        raise DamagedFileError(f"{path} is not readable ({error.strerror or error})") from None
    except SafetensorError as error:
        raise DamagedFileError(f"{path} is damaged ({error}): {_REMEDY}") from None
    if metadata.get("format") != FORMAT:
        raise DamagedFileError(
            f"{path} is not a ucds model (format {metadata.get('format')!r}, expected {FORMAT!r})"
        )
    try:
        card = _CARD.validate_json(metadata.get("card", ""))
    except ValidationError as error:
        raise DamagedFileError(f"{path} does not describe its model: {first_problem(error)}") from None
    if metadata.get("digest") != _digest(metadata["card"], tensors):
        raise DamagedFileError(f"{path} is damaged (its digest does not match): {_REMEDY}")
    if (name := _not_finite(tensors)) is not None:
        raise DamagedFileError(f"{path} cannot be used: its {name} holds NaN or infinity; train it again")
    return card, tensors


def _digest(card: str, tensors: Mapping[str, Tensor]) -> str:
    return digest_of(card.encode(), tensors_digest(tensors).encode())


def _not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Name the first tensor that holds NaN or infinity; ``None`` if all are finite."""
    return next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
