"""Fits the provider's model by the method that the settings belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ucds.choices import read_clusters
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.gradients.session import Session
from ucds.gradients.source_stage import fit_source_by_pcd
from ucds.networks.spec import Backbone, identity_backbone
from ucds.source.domains import fit_source_by_transport
from ucds.source.private import fit_source_privately
from ucds.training.cluster_choice import settle_clusters
from ucds.training.prepare import Training


def fit_source(
    session: Session[MethodSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int | str,
    *,
    groups: Mapping[str, str] | None = None,
) -> Training:
    """Learn a clustering model from unlabelled source domains, by the method of the run's settings.

    Args:
        session: the run, with the settings of a method.
        backbone: pre-trained encoder.
        data: source samples and views.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` to have it chosen, see
            :func:`ucds.training.cluster_choice.settle_clusters`.
        groups: person of each sample by id, for a model with differential privacy; ``None`` protects single
            images.

    Raises:
        InputError: there are too few samples, groups but no ``dp_epsilon``, or ``dp_epsilon`` but no number
            of clusters.
    """
    settings = session.settings
    epsilon = settings.dp_epsilon if isinstance(settings, ConsensusSettings) else None
    if groups is not None and epsilon is None:
        raise InputError("groups are for a model with differential privacy: give --dp-epsilon as well")
    if epsilon is not None and not isinstance(read_clusters(n_clusters), int):
        raise InputError("with --dp-epsilon give --clusters as a number: choosing it is not private")
    if epsilon is not None and backbone.spec.name == LENGTHS:
        # Where the samples lie is not private.
        backbone = identity_backbone(backbone.spec.takes, backbone.spec.columns)
    number = settle_clusters(session, backbone, data, n_clusters)
    if isinstance(settings, ConsensusSettings):
        ours = cast("Session[ConsensusSettings]", session)
        if epsilon is not None:
            return fit_source_privately(ours, backbone, data, number, groups)
        return fit_source_by_transport(ours, backbone, data, number)
    return fit_source_by_pcd(cast("Session[PCDSettings]", session), backbone, data, number)
