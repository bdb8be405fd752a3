"""IIC: cluster so that two views of a sample tell as much as possible about each other.

Source: Ji, Henriques and Vedaldi, Invariant information clustering, ICCV 2019.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from ucds.backbones import Backbone
from ucds.baselines.clustering import Clustering
from ucds.baselines.joint_information import mutual_information, view_joint
from ucds.baselines.loop import Loop
from ucds.baselines.sub_heads import (
    PairSettings,
    conclude,
    in_pairs,
    optimise,
    pair_probabilities,
    prepare_networks,
)
from ucds.data.sampler import DomainBalancedSampler
from ucds.training.session import Session
from ucds.training.stage import TrainingData


class IICSettings(PairSettings):
    """Settings of IIC; the defaults are the authors' for STL10."""

    epochs: int = Field(2000, ge=1, description="passes over the samples with each of the two heads")
    batch_size: int = Field(140, ge=2, description="samples a step")
    repeats: int = Field(5, ge=1, description="pairs of each sample in a batch, r")


def cluster_by_iic(
    session: Session,
    backbone: Backbone,
    data: TrainingData,
    n_clusters: int,
    settings: IICSettings,
    *,
    cache: Path | None = None,
) -> Clustering:
    """Cluster samples by invariant information.

    Args:
        session: the run; with ``tune = "head"`` the backbone stays frozen.
        backbone: encoder; the original starts from random weights.
        data: samples, whose domains are ignored. Images are cropped as the settings say.
        n_clusters: the paper's ``C``.
        settings: of the method.
        cache: folder for frozen features; ``None`` keeps them in memory.

    Raises:
        UserError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    networks, usual = prepare_networks(session, backbone, data, n_clusters, settings, name="iic", cache=cache)
    pairs = in_pairs(backbone, usual, settings, settings.repeats)
    nowhere = np.zeros(len(pairs.samples), dtype=np.int64)
    sampler = DomainBalancedSampler(nowhere, settings.batch_size, session.runtime.seed)
    total = 2 * settings.epochs * sampler.steps_per_epoch
    loop = Loop(session, "iic", networks.heads, optimise(networks.heads, settings), pairs, total)
    for _ in range(settings.epochs):
        for over in (True, False):
            for batch in loop.epoch(sampler):
                first, second = pair_probabilities(loop.forward, batch.inputs, over)
                loop.update(information=-mutual_information(view_joint(first, second)).mean())
    return conclude(session, loop, networks, pairs, name="iic")
