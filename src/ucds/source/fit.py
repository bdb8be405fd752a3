"""Fits the provider's model by the method that the settings belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ucds.choices import read_clusters
from ucds.config import ConsensusSettings, MethodSettings
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder, IdentityEncoder
from ucds.encoders.spec import LENGTHS
from ucds.errors import InputError
from ucds.source.domains import fit_source_by_transport
from ucds.source.private import fit_source_privately
from ucds.training.cluster_choice import settle_clusters
from ucds.training.prepare import Training
from ucds.training.work import Work


def fit_source(
    work: Work[MethodSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int | str,
    *,
    groups: Mapping[str, str] | None = None,
) -> Training:
    """Learn a clustering model from unlabelled source domains, by the method of the run's settings.

    Args:
        work: the run, with the settings of a method.
        encoder: frozen encoder, or the one to train with PCD and ``--tune full``.
        data: source samples and views.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose: see
            :func:`ucds.training.cluster_choice.settle_clusters`.
        groups: person of each sample by id, for a model with differential privacy; ``None`` protects single
            images.

    Raises:
        InputError: there are too few samples, groups but no ``dp_epsilon``, or ``dp_epsilon`` but no number
            of clusters.
    """
    settings = work.settings
    epsilon = settings.dp_epsilon if isinstance(settings, ConsensusSettings) else None
    if groups is not None and epsilon is None:
        raise InputError("groups are for a model with differential privacy: give `dp_epsilon` as well")
    if epsilon is not None and not isinstance(read_clusters(n_clusters), int):
        raise InputError("with `dp_epsilon`, give `n_clusters` as a number: choosing it is not private")
    if epsilon is not None and encoder.spec.name == LENGTHS:
        # Where the samples lie is not private.
        encoder = IdentityEncoder(encoder.spec.takes, encoder.spec.columns)
    number = settle_clusters(work, encoder, data, n_clusters)
    if isinstance(settings, ConsensusSettings):
        ours = cast("Work[ConsensusSettings]", work)
        if epsilon is not None:
            return fit_source_privately(ours, encoder, data, number, groups)
        return fit_source_by_transport(ours, encoder, data, number)
    from ucds.gradients.source_stage import fit_source_by_pcd  # it brings torch

    return fit_source_by_pcd(work, encoder, data, number)
