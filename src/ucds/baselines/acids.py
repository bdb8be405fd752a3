"""ACIDS: IIC over several source domains, aligned by batch normalisation, and then on the target.

Unlike PCD it gives the source weights to the client, and it needs batch normalisation. Source: Menapace,
Lathuilière and Ricci, Learning to cluster under domain shift, ECCV 2020.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ucds.backbones import Backbone
from ucds.baselines.domain_norm import estimate_statistics, merge_norms, split_norms
from ucds.baselines.joint_information import (
    RunningJoint,
    domain_joint,
    harden,
    mutual_information,
    view_joint,
)
from ucds.baselines.loop import Clustering, Loop
from ucds.baselines.settings import ACIDSSettings
from ucds.baselines.sub_heads import (
    Networks,
    conclude,
    in_pairs,
    make_optimiser,
    pair_probabilities,
    prepare_networks,
)
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.training.features import frozen_features
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

HEADS = (True, False)
"""Whether an epoch uses the over-clustering head: it does in its first pass, and not in its second."""


class AcidsModel(NamedTuple):
    """The source model, with all the weights that the provider gives away, and its cost.

    The networks have one batch normalisation for each source domain.
    """

    backbone: Backbone
    networks: Networks
    seconds: float
    images_seen: int


def learn_acids(
    session: Session[ACIDSSettings],
    backbone: Backbone,
    source_data: Dataset,
    n_clusters: int,
) -> AcidsModel:
    """Learn clusters that say much about a sample of several domains, and nothing about its domain.

    Arguments are those of :func:`ucds.baselines.iic.cluster_by_iic`.

    Raises:
        InputError: the network has no batch normalisation, a domain gets fewer than 2 samples in a batch,
            or the loss is no longer finite.
    """
    name = "acids-source"
    settings = session.settings
    networks, usual = prepare_networks(session, backbone, source_data, n_clusters, name=name)
    pairs, heads = in_pairs(backbone, usual, settings), networks.heads
    sampler = DomainBalancedSampler(pairs.samples.domain, settings.batch_size, session.runtime.seed)
    split_norms(heads.encoder, sampler.counts)
    total = 2 * settings.source_epochs * sampler.steps_per_epoch
    loop = Loop(session, name, heads, make_optimiser(heads, settings), pairs, total)
    joints = {over: RunningJoint(settings.joint_weight) for over in HEADS}
    domain_joints = {over: RunningJoint(settings.joint_weight) for over in HEADS}
    for epoch in range(settings.source_epochs):
        weight = settings.domain_weight
        if epoch < settings.domain_warm_up:
            weight *= epoch / settings.domain_warm_up
        for over in HEADS:
            for batch in loop.epoch(sampler):
                first, second = pair_probabilities(loop.forward, batch.inputs, over)
                joint = joints[over](view_joint(first, second))
                of_domain = domain_joints[over](domain_joint((first + second) / 2, sampler.counts))
                loop.update(
                    information=-mutual_information(joint).mean(),
                    domain=weight * mutual_information(of_domain).mean(),
                )
    session.runtime.reporter.end()
    return AcidsModel(backbone, networks, loop.seconds, loop.images_seen)


def adapt_acids(
    session: Session[ACIDSSettings],
    model: AcidsModel,
    target_data: Dataset,
) -> Clustering:
    """Cluster target samples with the source weights: align the statistics, then train on the target.

    The source model is not changed, and the cost of the clustering includes it.

    Raises:
        InputError: there are fewer than 2 samples, or the loss is no longer finite.
    """
    name, runtime, settings = "acids-target", session.runtime, session.settings
    size = settings.prediction_batch_size
    networks = copy.deepcopy(model.networks)
    merge_norms(networks.heads.encoder)
    if settings.tune == "head":
        target_data = frozen_features(model.backbone, target_data, runtime, batch_size=size)
    pairs, heads = in_pairs(model.backbone, target_data, settings), networks.heads
    sampler = DomainBalancedSampler(
        np.zeros(len(pairs.samples), dtype=np.int64), settings.batch_size, runtime.seed
    )
    total = 2 * settings.target_epochs * sampler.steps_per_epoch
    loop = Loop(session, name, heads, make_optimiser(heads, settings), pairs, total)
    order = numpy_generator(runtime.seed, name, "statistics")
    estimate_statistics(heads.encoder, pairs, runtime, size, order)
    joints = {over: RunningJoint(settings.joint_weight) for over in HEADS}
    for _ in range(settings.target_epochs):
        for over in HEADS:
            for batch in loop.epoch(sampler):
                first, second = pair_probabilities(loop.forward, batch.inputs, over)
                joint = joints[over](view_joint(harden(first, settings.confidence), second))
                loop.update(information=-mutual_information(joint).mean())
    estimate_statistics(heads.encoder, pairs, runtime, size, order)
    found = conclude(session, loop, networks, pairs, name=name)
    return replace(
        found, seconds=model.seconds + found.seconds, images_seen=model.images_seen + found.images_seen
    )
