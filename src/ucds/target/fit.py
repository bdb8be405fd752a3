"""Fits the client's model by the method that the settings belong to."""

from __future__ import annotations

from typing import cast

from ucds.choices import read_clusters
from ucds.config import ConsensusSettings, MethodSettings
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError, warn
from ucds.labels.cluster_labels import ClusterLabels
from ucds.target.agreement import fit_target_by_consensus
from ucds.training.cluster_choice import settle_clusters
from ucds.training.prepare import Training
from ucds.training.work import Work


def fit_target(
    work: Work[MethodSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int | str,
    labels: ClusterLabels | None,
) -> Training:
    """Learn a clustering model of the target's samples, by the method of the run's settings.

    Args:
        work: the run, with the settings of a method.
        encoder: frozen encoder, or the one to train with PCD and ``--tune full``.
        data: target samples and views.
        n_clusters: number of clusters, K; ``"auto"`` or a range such as ``"3..40"`` lets ucds choose: see
            :func:`ucds.training.cluster_choice.settle_clusters`. The labels play no part in the choice.
        labels: provider's labels in the order of the samples, see :meth:`ClusterLabels.align`; some samples
            may have none. ``None`` clusters the samples alone.

    Raises:
        InputError: there are too few samples, or PCD is given labels of another number of clusters, or
            labels and no number.

    Warns:
        UcdsWarning: only some samples have a label.
    """
    if labels is not None and len(labels.ids) < len(data.samples):
        message = f"{len(labels.ids):,} of {len(data.samples):,} samples have a label of the provider"
        warn(f"{message}; the others are clustered along with them")
    ours = isinstance(work.settings, ConsensusSettings)
    if labels is not None and not ours and not isinstance(read_clusters(n_clusters), int):
        raise InputError(
            'with `method="pcd"`, the provider\'s labels fix the number of clusters: leave out `n_clusters`'
        )
    number = settle_clusters(work, encoder, data, n_clusters, finest=True)
    if number > max(1000, len(data.samples)):  # the labels may have named it
        raise InputError(f"{len(data.samples):,} samples are too few for {number:,} clusters")
    if ours:
        consensus = cast("Work[ConsensusSettings]", work)
        return fit_target_by_consensus(consensus, encoder, data, number, labels)
    from ucds.gradients.target_stages import fit_target_by_pcd  # it brings torch

    return fit_target_by_pcd(work, encoder, data, number, labels)
