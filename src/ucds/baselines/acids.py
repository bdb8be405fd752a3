"""ACIDS: IIC over several source domains, aligned by batch normalisation, and then on the target.

Each domain has its own statistics of batch normalisation, but all share scale and shift, so that the features
of every domain have the same mean and variance. A new domain is aligned by estimating its statistics, without
any training. Unlike PCD it gives the source weights to the client, and it needs batch normalisation. Source:
Menapace, Lathuilière and Ricci, Learning to cluster under domain shift, ECCV 2020.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from ucds.baselines.iic import (
    Networks,
    PairSettings,
    conclude,
    in_pairs,
    make_loop,
    mutual_information,
    pair_probabilities,
    prepare_networks,
    view_joint,
)
from ucds.baselines.loop import Clustering
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError
from ucds.gradients.pcd_loss import at_least_single
from ucds.gradients.prepare import features_of
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.training.seeds import numpy_generator

HEADS = (True, False)
"""Whether an epoch uses the over-clustering head: yes in the first pass, no in the second."""

Kind = TypeVar("Kind", bound=nn.Module)


class ACIDSSettings(PairSettings):
    """Settings of ACIDS; the defaults are the authors' for Office-31 or, if these are unknown, for PACS."""

    source_epochs: int = Field(200, ge=1, description="passes over the source with each of the two heads")
    target_epochs: int = Field(100, ge=1, description="passes over the target with each of the two heads")
    batch_size: int = Field(162, ge=2, description="samples per step, over all domains")
    joint_weight: float = Field(0.2, gt=0, le=1, description="weight of a batch in the running joint, alpha")
    domain_weight: float = Field(10.0, ge=0, description="weight of the information about the domain, lambda")
    domain_warm_up: int = Field(8, ge=0, description="epochs in which that weight rises from zero")
    confidence: float = Field(
        0.95, gt=0, description="confidence from which a target prediction is made hard"
    )


class AcidsModel(NamedTuple):
    """The source model with all its weights, which the provider gives away, and its cost.

    The networks have one batch normalisation per source domain.
    """

    encoder: Encoder
    networks: Networks
    seconds: float
    images_seen: int


def cluster_by_acids(
    session: Session[ACIDSSettings],
    encoder: Encoder,
    source_data: Dataset,
    target_data: Dataset,
    n_clusters: int,
) -> Clustering:
    """Cluster target samples by ACIDS, which learns from the source first."""
    return adapt_acids(session, learn_acids(session, encoder, source_data, n_clusters), target_data)


def learn_acids(
    session: Session[ACIDSSettings], encoder: Encoder, source_data: Dataset, n_clusters: int
) -> AcidsModel:
    """Learn clusters that say much about a sample of several domains, and nothing about its domain."""
    name, settings = "acids-source", session.settings
    networks, usual = prepare_networks(session, encoder, source_data, n_clusters, name=name)
    pairs, heads = in_pairs(encoder, usual, settings), networks.heads
    sampler = DomainBalancedSampler(pairs.samples.domain, settings.batch_size, session.seed)
    split_norms(heads.encoder, sampler.counts)
    loop = make_loop(session, name, heads, pairs, settings.source_epochs * sampler.steps_per_epoch)
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
    return AcidsModel(encoder, networks, loop.seconds, loop.images_seen)


def adapt_acids(session: Session[ACIDSSettings], model: AcidsModel, target_data: Dataset) -> Clustering:
    """Cluster target samples with the source weights: align the statistics, then train on the target.

    The source model is not changed, and the cost of the clustering includes it.
    """
    name, runtime, settings = "acids-target", session.runtime, session.settings
    size = settings.prediction_batch_size
    networks = copy.deepcopy(model.networks)
    merge_norms(networks.heads.encoder)
    if settings.tune == "head":
        target_data = features_of(session, model.encoder, target_data, size)
    pairs, heads = in_pairs(model.encoder, target_data, settings), networks.heads
    nowhere = np.zeros(len(pairs.samples), dtype=np.int64)
    sampler = DomainBalancedSampler(nowhere, settings.batch_size, session.seed)
    loop = make_loop(session, name, heads, pairs, settings.target_epochs * sampler.steps_per_epoch)
    order = numpy_generator(session.seed, name, "statistics")
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
    # Counted as trained: of its two heads of several sub-heads, one sub-head is left in the end.
    whole = nn.ModuleList([networks.trained.encoder, heads])
    return replace(
        found,
        seconds=model.seconds + found.seconds,
        images_seen=model.images_seen + found.images_seen,
        parameters=sum(weight.numel() for weight in whole.parameters()) + networks.frozen,
    )


def domain_joint(probabilities: Tensor, counts: Sequence[int]) -> Tensor:
    """Estimate the joint distribution ``(..., D, K)`` of domain and cluster of a sample.

    ``counts`` says how many of the ``(..., n, K)`` probabilities each domain has, in order.
    """
    parts = torch.split(at_least_single(probabilities), list(counts), dim=-2)
    return torch.stack([part.sum(-2) for part in parts], dim=-2) / sum(counts)


def harden(probabilities: Tensor, confidence: float) -> Tensor:
    """Replace rows of ``(..., K)`` by one-hot constants where the largest entry reaches ``confidence``."""
    certain = functional.one_hot(probabilities.argmax(-1), probabilities.shape[-1]).to(probabilities)
    return torch.where(probabilities.amax(-1, keepdim=True) >= confidence, certain, probabilities)


class RunningJoint:
    """Averages the joint distributions of successive batches, each of which is too small for an estimate.

    ``P <- alpha P_batch + (1 - alpha) P``, from a uniform start, with ``weight`` as alpha. The gradient flows
    through the batch only.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._past: Tensor | None = None

    def __call__(self, joint: Tensor) -> Tensor:
        """Return the average after adding the joint distribution ``(..., R, C)`` of a batch."""
        if self._past is None:
            self._past = torch.full_like(joint, 1 / (joint.shape[-2] * joint.shape[-1]))
        average = torch.lerp(self._past, joint, self._weight)
        self._past = average.detach()
        return average


class DomainNorm(nn.Module):
    """Batch normalisations with shared scale and shift, for batches with ``counts`` rows of each domain.

    Other operations in the class of the replaced ``norm``, such as activations, are kept.
    """

    def __init__(self, norm: _BatchNorm, counts: Sequence[int]) -> None:
        super().__init__()
        self.counts = list(counts)
        others = [copy.deepcopy(norm) for _ in counts[1:]]
        for other in others:
            other.weight, other.bias = norm.weight, norm.bias
        self.norms = nn.ModuleList([norm, *others])

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise a batch whose first ``counts[0]`` rows are of domain 0, and so on."""
        parts = torch.split(inputs, self.counts)
        return torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)])


def split_norms(module: nn.Module, counts: Sequence[int]) -> None:
    """Replace every batch normalisation below ``module`` by one with statistics of each domain, in place."""
    if min(counts) < 2:
        raise InputError(
            "batch normalisation by domain needs 2 samples of each domain in a batch; enlarge it"
        )
    places = list(_children(module, _BatchNorm))
    if not places:
        raise InputError("ACIDS aligns domains by batch normalisation, but this network has no such layers")
    for parent, name, norm in places:
        setattr(parent, name, DomainNorm(norm, counts))


def merge_norms(module: nn.Module) -> None:
    """Undo :func:`split_norms` in place; scale and shift stay, the statistics are those of domain 0."""
    for parent, name, split in list(_children(module, DomainNorm)):
        setattr(parent, name, split.norms[0])


def estimate_statistics(
    module: nn.Module, data: Dataset, runtime: Runtime, batch_size: int, generator: np.random.Generator
) -> None:
    """Replace the statistics of batch normalisation by those of ``data`` in its test view, in place.

    Each statistic is the mean over batches of samples in random order; no weight changes.
    """
    order = generator.permutation(len(data.samples))
    # No batch is smaller than asked, so every batch has a variance.
    parts = np.array_split(order, max(1, len(order) // max(2, batch_size)))
    with runtime.autocast():
        inputs = (torch.from_numpy(data.view.test(data.samples.read(part))) for part in parts)
        update_bn((batch.to(runtime.device) for batch in inputs), module)


def _children(module: nn.Module, kind: type[Kind]) -> Iterator[tuple[nn.Module, str, Kind]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            if isinstance(child, kind):
                yield parent, name, child
