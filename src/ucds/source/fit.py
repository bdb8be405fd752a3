"""Fits the provider's model by the method that the settings belong to."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.source.pcd import fit_source_by_pcd
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
) -> TrainedModel:
    """Learn a clustering model from unlabelled source domains, by the method of the run's settings.

    Args:
        session: the run, with the settings of a method.
        backbone: pre-trained encoder.
        data: source samples and views.
        n_clusters: number of clusters, K.
        cache: folder of frozen features; ``None`` keeps them in memory.

    Raises:
        InputError: there are too few samples.
    """
    if isinstance(session.settings, ConsensusSettings):
        ours = cast("Session[ConsensusSettings]", session)
        return fit_source_by_transport(ours, backbone, data, n_clusters, cache)
    return fit_source_by_pcd(cast("Session[PCDSettings]", session), backbone, data, n_clusters, cache)
