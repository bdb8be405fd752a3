"""Writes and reads a finished model: weights, description of the network, and side that trained it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ucds.backbones import Backbone, BackboneSpec, rebuild_backbone
from ucds.choices import Role, Tune
from ucds.errors import DamagedFileError, InputError
from ucds.files import write_atomically
from ucds.models import ClusteringModel

FORMAT = "ucds-model/1"
MODEL_FILE = "model.safetensors"


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
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    role: Role
    name: str
    n_clusters: int
    bottleneck_width: int
    backbone: BackboneSpec
    weights: str
    domains: tuple[str, ...]
    stages: tuple[str, ...]
    tune: Tune = "full"
    unit_features: bool = False


@dataclass(frozen=True)
class StoredModel:
    """A finished model with its description.

    Attributes:
        card: description of the model.
        model: network, in evaluation mode.
        proportions: ``(D, K)`` sizes of the clusters in each training domain.
    """

    card: ModelCard
    model: ClusteringModel
    proportions: Tensor


def save_model(run: Path, stored: StoredModel) -> None:
    """Write the model file of a run folder, all of it or none.

    Raises:
        NoSpaceError: the disk is full, or the folder is not writable.
    """
    state = stored.model.state_dict()
    tensors = {f"model.{name}": tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    tensors["proportions"] = stored.proportions.detach().cpu().contiguous()
    data = save(tensors, metadata={"format": FORMAT, "card": json.dumps(asdict(stored.card))})
    write_atomically(run / MODEL_FILE, lambda file: file.write(data))


def load_model(run: Path, *, role: Role | None = None, backbone: Backbone | None = None) -> StoredModel:
    """Read the model of a finished run.

    Args:
        run: run folder.
        role: side of the model; a model of the other side is refused. ``None`` takes both.
        backbone: encoder, if the model was trained with a module of the caller's own.

    Raises:
        InputError: there is no finished run in the folder, or the role is wrong.
        DamagedFileError: the file cannot be read, or does not fit its own description.
    """
    path = run / MODEL_FILE
    if not path.exists():
        if (run / "run.json").exists():
            raise InputError(f"the run in {run} is not finished: take it up again with --resume")
        raise InputError(f"{run} is not a run folder: it holds no {MODEL_FILE}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from None
    card = _read_card(metadata, path)
    if role is not None and card.role != role:
        raise InputError(
            f"{run} holds a model of role '{card.role}', and only one of role '{role}' may be used here: "
            "source models stay with their owner, who answers with labels"
        )
    model = ClusteringModel(
        backbone or rebuild_backbone(card.backbone),
        card.n_clusters,
        bottleneck_width=card.bottleneck_width,
        unit_features=card.unit_features,
    )
    try:
        proportions = tensors.pop("proportions")
        model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    except (KeyError, RuntimeError) as error:
        reason = f"it holds no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise DamagedFileError(f"{path} does not fit its own description: {reason}") from None
    return StoredModel(card, model.eval(), proportions)


def _read_card(metadata: Mapping[str, str], path: Path) -> ModelCard:
    if metadata.get("format") != FORMAT:
        raise DamagedFileError(
            f"{path} is not a ucds model (format {metadata.get('format')!r}, expected {FORMAT!r})"
        )
    try:
        return _CARD.validate_json(metadata.get("card", ""))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise DamagedFileError(f"{path} does not describe its model: {place}: {first['msg']}") from None


_CARD = TypeAdapter(ModelCard)
