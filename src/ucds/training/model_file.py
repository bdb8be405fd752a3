"""A finished model on disk: weights, how to rebuild it, and which side of the wall it belongs to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ucds.backbones import Backbone, BackboneSpec, rebuild_backbone
from ucds.choices import Tune
from ucds.errors import UserError
from ucds.files import write_atomically
from ucds.models import ClusteringModel

FORMAT = "ucds-model/1"
MODEL_FILE = "model.safetensors"
Role = Literal["source", "target"]


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


def save_model(path: Path, model: ClusteringModel, proportions: Tensor, card: ModelCard) -> None:
    """Write a model file; a crash leaves the old file or the new one."""
    tensors = {
        f"model.{name}": tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    tensors["proportions"] = proportions.detach().cpu().contiguous()
    header = asdict(card) | {"backbone": card.backbone.to_dict()}
    data = save(tensors, metadata={"format": FORMAT, "card": json.dumps(header)})
    write_atomically(path, lambda file: file.write(data))


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
        hint = "the run is not finished: take it up again with --resume" if started else "it is no run folder"
        raise UserError(f"{run} holds no model: {hint}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    card = _read_card(metadata, path)
    if role is not None and card.role != role:
        raise UserError(
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
        raise UserError(f"{path} does not fit its own description: it holds no proportions")
    try:
        model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    except RuntimeError as error:
        raise UserError(f"{path} does not fit its own description: {str(error).splitlines()[0]}") from None
    return StoredModel(card, model.eval(), proportions)


def _read_card(metadata: dict[str, Any], path: Path) -> ModelCard:
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"{path} is not a ucds model (format {metadata.get('format')!r}, expected {FORMAT!r})"
        )
    try:
        values = json.loads(metadata["card"])
        values["backbone"] = BackboneSpec.from_dict(values["backbone"])
        values["domains"], values["stages"] = tuple(values["domains"]), tuple(values["stages"])
        card = ModelCard(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not describe its model: {error}") from None
    if card.role not in get_args(Role):
        raise UserError(f"{path} does not describe its model: its role is {card.role!r}")
    return card


def state_digest(module: torch.nn.Module) -> str:
    """Hexadecimal digest of a module's weights: equal for equal weights."""
    import hashlib

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(array.shape)} {array.dtype}".encode())
        digest.update(array.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
