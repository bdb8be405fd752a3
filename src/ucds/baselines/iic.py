"""IIC: clusters samples so that two views of a sample have the largest mutual information.

Source: Ji, Henriques and Vedaldi, Invariant information clustering, ICCV 2019.
"""

from __future__ import annotations

import numpy as np

from ucds.backbones import Backbone
from ucds.baselines.joint_information import mutual_information, view_joint
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import IICSettings
from ucds.baselines.sub_heads import conclude, in_pairs, make_optimiser, pair_probabilities, prepare_networks
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.training.session import Session


def cluster_by_iic(
    session: Session[IICSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
) -> Clustering:
    """Cluster samples by invariant information.

    Args:
        session: the run; with ``tune = "head"`` the backbone stays frozen.
        backbone: encoder; the original starts from random weights.
        data: samples, whose domains are ignored; images are cropped as the settings say.
        n_clusters: number of clusters, the paper's ``C``.

    Raises:
        InputError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    settings = session.settings
    networks, usual = prepare_networks(session, backbone, data, n_clusters, name="iic")
    pairs = in_pairs(backbone, usual, settings, settings.repeats)
    nowhere = np.zeros(len(pairs.samples), dtype=np.int64)
    sampler = DomainBalancedSampler(nowhere, settings.batch_size, session.runtime.seed)
    total = 2 * settings.epochs * sampler.steps_per_epoch
    loop = Loop(session, "iic", networks.heads, make_optimiser(networks.heads, settings), pairs, total)
    for _ in range(settings.epochs):
        for over in (True, False):
            for batch in loop.epoch(sampler):
                first, second = pair_probabilities(loop.forward, batch.inputs, over)
                loop.update(information=-mutual_information(view_joint(first, second)).mean())
    return conclude(session, loop, networks, pairs, name="iic")
