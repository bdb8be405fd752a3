"""A finished model on disk: weights, how to rebuild it, and which side of the wall it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
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
    """What a model file says of itself, in words that a person can read.

    Attributes:
        role: the side it was trained on. A target owner must never hold a model of role "source".
        name: of the run that made it; as provider it signs cluster labels with this name.
        n_clusters: the paper's ``K``.
        bottleneck_width: width of features and prototypes.
        backbone: how to rebuild the encoder.
        weights: what the encoder started from.
        domains: names of the domains it was trained on, in the order of the proportions.
        stages: names of the stages it went through.
        tune: whether the whole encoder was trained, or its backbone stayed frozen.
        unit_features: whether the backbone's features are brought to unit length.
    """

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
    """A model read from its file.

    Attributes:
        card: what it is.
        model: in evaluation mode, on the CPU.
        proportions: ``(D, K)`` learned proportions of its training domains.
    """

    card: ModelCard
    model: ClusteringModel
    proportions: Tensor


def save_model(run: Path, stored: StoredModel) -> None:
    """Write the model file of a run folder; a crash leaves the old file or the new one."""
    state = stored.model.state_dict()
    tensors = {f"model.{name}": tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    tensors["proportions"] = stored.proportions.detach().cpu().contiguous()
    data = save(tensors, metadata={"format": FORMAT, "card": json.dumps(asdict(stored.card))})
    write_atomically(run / MODEL_FILE, lambda file: file.write(data))


def load_model(run: Path, *, role: Role | None = None, backbone: Backbone | None = None) -> StoredModel:
    """Read the model of a finished run.

    Args:
        run: the run folder.
        role: refuse a model of any other role.
        backbone: the encoder, when the model was trained with a module of the caller's own.

    Raises:
        UserError: the run is not finished, the file is damaged, or the role is wrong.
    """
    path = run / MODEL_FILE
    if not path.exists():
        started = (run / "run.json").exists()
        if started:
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
    proportions = tensors.pop("proportions", None)
    if proportions is None:
        raise DamagedFileError(f"{path} does not fit its own description: it holds no proportions")
    try:
        model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    except RuntimeError as error:
        raise DamagedFileError(
            f"{path} does not fit its own description: {str(error).splitlines()[0]}"
        ) from None
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
