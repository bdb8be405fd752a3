"""The baselines as methods: which part of a task each one sees, and from which encoder it starts.

Baselines are imported when one is run or its settings are read, so that the paper's methods need none of
their code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from ucds.backbones import Backbone
from ucds.experiments.bench import Bench, Outcome
from ucds.training.stage import TrainingData

if TYPE_CHECKING:
    from ucds.baselines.acids import ACIDSSettings
    from ucds.baselines.clustering import Clustering
    from ucds.baselines.deepcluster import DeepClusterSettings
    from ucds.baselines.iic import IICSettings


def deepcluster_settings(values: Mapping[str, Any]) -> DeepClusterSettings:
    """Settings of ``[baselines.deepcluster]``."""
    from ucds.baselines.deepcluster import DeepClusterSettings

    return DeepClusterSettings.from_mapping(values)


def iic_settings(values: Mapping[str, Any]) -> IICSettings:
    """Settings of ``[baselines.iic]``."""
    from ucds.baselines.iic import IICSettings

    return IICSettings.from_mapping(values)


def acids_settings(values: Mapping[str, Any]) -> ACIDSSettings:
    """Settings of ``[baselines.acids]``."""
    from ucds.baselines.acids import ACIDSSettings

    return ACIDSSettings.from_mapping(values)


def deepcluster(bench: Bench) -> Outcome:
    """DeepCluster on the target alone, from the target's pre-trained encoder."""
    return _deepcluster("deepcluster", bench, bench.task.backbone(), bench.task.target)


def iic(bench: Bench) -> Outcome:
    """IIC on the target alone, from the target's pre-trained encoder."""
    return _iic("iic", bench, bench.task.backbone(), bench.task.target)


def acids(bench: Bench) -> Outcome:
    """ACIDS from the source's pre-trained encoder: its target model starts from the source model."""
    return _acids(
        "acids", bench, bench.task.make_source_backbone(), bench.task.source, bench.task.seen_by_source
    )


def deepcluster_original(bench: Bench) -> Outcome:
    """DeepCluster as in its own paper, from random weights on image gradients."""
    bench, backbone = _from_scratch(bench)
    return _deepcluster("deepcluster-original", bench, backbone, bench.task.target)


def iic_original(bench: Bench) -> Outcome:
    """IIC as in its own paper, from random weights on image gradients."""
    bench, backbone = _from_scratch(bench)
    return _iic("iic-original", bench, backbone, bench.task.target)


def acids_original(bench: Bench) -> Outcome:
    """ACIDS as in its own paper, from random weights on image gradients."""
    bench, backbone = _from_scratch(bench)
    return _acids("acids-original", bench, backbone, bench.task.source, bench.task.target)


def _from_scratch(bench: Bench) -> tuple[Bench, Backbone]:
    """A bench that trains everything, for a random encoder cannot stay frozen, and that encoder."""
    from ucds.baselines.sobel import sobel_backbone

    setting = bench.setting
    whole = replace(setting, config=setting.config.model_copy(update={"tune": "full"}))
    return Bench(bench.task, whole), sobel_backbone(seed=setting.seed)


def _deepcluster(method: str, bench: Bench, backbone: Backbone, data: TrainingData) -> Outcome:
    from ucds.baselines.deepcluster import cluster_by_deepcluster

    setting = bench.setting
    found = cluster_by_deepcluster(
        setting.session(),
        backbone,
        data,
        bench.task.n_clusters,
        deepcluster_settings(setting.baselines.get("deepcluster", {})),
        cache=setting.cache,
    )
    return _outcome(method, found, data)


def _iic(method: str, bench: Bench, backbone: Backbone, data: TrainingData) -> Outcome:
    from ucds.baselines.iic import cluster_by_iic

    setting = bench.setting
    found = cluster_by_iic(
        setting.session(),
        backbone,
        data,
        bench.task.n_clusters,
        iic_settings(setting.baselines.get("iic", {})),
        cache=setting.cache,
    )
    return _outcome(method, found, data)


def _acids(
    method: str, bench: Bench, backbone: Backbone, source: TrainingData, target: TrainingData
) -> Outcome:
    from ucds.baselines.acids import adapt_acids, learn_acids

    setting = bench.setting
    settings = acids_settings(setting.baselines.get("acids", {}))
    model = learn_acids(
        setting.session(), backbone, source, bench.task.n_clusters, settings, cache=setting.cache
    )
    # As trained: of its two heads of several sub-heads, one sub-head is left in the end.
    trained = nn.ModuleList([model.networks.whole.encoder, model.networks.heads])
    found = adapt_acids(setting.session(), model, target, settings, cache=setting.cache)
    return replace(_outcome(method, found, target), parameters=_count(trained))


def _outcome(method: str, found: Clustering, data: TrainingData) -> Outcome:
    parameters = _count(found.model)
    return Outcome(method, found.labels, found.seconds, (), None, data, parameters, found.images_seen)


def _count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())
