"""Fits the provider's model by the method that the settings belong to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.errors import InputError
from ucds.source.pcd import fit_source_by_pcd
from ucds.source.private import fit_source_privately
from ucds.source.transport import fit_source_by_transport
from ucds.training.prepare import TrainedModel
from ucds.training.session import Session


def fit_source(
    session: Session[MethodSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    *,
    cache: Path | None = None,
    groups: Mapping[str, str] | None = None,
) -> TrainedModel:
    """Learn a clustering model from unlabelled source domains, by the method of the run's settings.

    Args:
        session: the run, with the settings of a method.
        backbone: pre-trained encoder.
        data: source samples and views.
        n_clusters: number of clusters, K.
        cache: folder of frozen features; ``None`` keeps them in memory.
        groups: person of each sample by id, for a model with differential privacy; ``None`` protects single
            images.

    Raises:
        InputError: there are too few samples, or groups but no ``dp_epsilon``.
    """
    epsilon = getattr(session.settings, "dp_epsilon", None)
    if groups is not None and epsilon is None:
        raise InputError("groups are for a model with differential privacy: give --dp-epsilon as well")
    if isinstance(session.settings, ConsensusSettings):
        ours = cast("Session[ConsensusSettings]", session)
        if epsilon is not None:
            return fit_source_privately(ours, backbone, data, n_clusters, cache, groups)
        return fit_source_by_transport(ours, backbone, data, n_clusters, cache)
    return fit_source_by_pcd(cast("Session[PCDSettings]", session), backbone, data, n_clusters, cache)
