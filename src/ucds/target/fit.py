"""Fits the client's model by the method that the settings belong to."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import cast

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings, MethodSettings, PCDSettings
from ucds.data.dataset import Dataset
from ucds.errors import InputError, UcdsWarning
from ucds.labels.cluster_labels import ClusterLabels
from ucds.math.constraints import Constraints
from ucds.target.consensus import fit_target_by_consensus
from ucds.target.pcd import fit_target_by_pcd
from ucds.training.prepare import TrainedModel
from ucds.training.session import Session


def fit_target(
    session: Session[MethodSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    labels: ClusterLabels | None,
    *,
    cache: Path | None = None,
    corrections: Constraints | None = None,
) -> TrainedModel:
    """Learn a clustering model of the target's samples, by the method of the run's settings.

    Args:
        session: the run, with the settings of a method.
        backbone: pre-trained encoder, of any architecture.
        data: target samples and views.
        n_clusters: number of clusters, K.
        labels: provider's labels in the order of the samples, see :meth:`ClusterLabels.align`; some samples
            may have none. ``None`` clusters the samples alone.
        cache: folder of frozen features; ``None`` keeps them in memory.
        corrections: groups of samples that belong together or apart, for the consensus method only; none if
            ``None``.

    Raises:
        InputError: there are too few samples, PCD is given labels of another number of clusters, or PCD is
            given corrections.

    Warns:
        UcdsWarning: only some samples have a label.
    """
    if labels is not None and len(labels.ids) < len(data.samples):
        message = f"{len(labels.ids):,} of {len(data.samples):,} samples have a label of the provider"
        warnings.warn(f"{message}; the others are clustered along with them", UcdsWarning, stacklevel=2)
    if isinstance(session.settings, ConsensusSettings):
        ours = cast("Session[ConsensusSettings]", session)
        return fit_target_by_consensus(ours, backbone, data, n_clusters, labels, cache, corrections)
    if corrections is not None:
        raise InputError("corrections are for the method consensus: leave out --constraints or --method pcd")
    return fit_target_by_pcd(cast("Session[PCDSettings]", session), backbone, data, n_clusters, labels, cache)
