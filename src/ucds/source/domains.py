"""The provider's part of the consensus method: cluster, match and transport domains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.encoders.encoder import Encoder
from ucds.errors import InputError, brief
from ucds.math.domain_transport import FeatureClusters, cluster_domains
from ucds.math.spaces import WIDTH
from ucds.training.features import read_all
from ucds.training.fitting import build_head, features_to_cluster, tell_what_drawing_costs
from ucds.training.prepare import Training, draw_dataset
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

STAGE = "cluster-domains"


def fit_source_by_transport(
    work: Work[ConsensusSettings], encoder: Encoder, data: Dataset, n_clusters: int
) -> Training:
    """Cluster the frozen features of all source domains, and build a model that labels any single sample.

    From a single sample, whose domain is unknown, the model subtracts the mean of the domains' means. A
    folder that is labelled as a whole is better centred on its own mean.
    """
    _refuse_small_domains(data.samples, n_clusters)
    everything = len(data.samples)
    data, drawn = draw_dataset(work, data)
    features = features_to_cluster(work, encoder, data, n_clusters)
    head, found, encoded = build_head(work, STAGE, features, lambda: _cluster(work, features, n_clusters))
    if len(drawn) < everything:
        tell_what_drawing_costs(work, head, encoded, found.assignments, fitted=False)
    return Training(encoder, head, features, "head", tuple(work.results), recentres=True)


def _refuse_small_domains(samples: Samples, n_clusters: int) -> None:
    for name, count in zip(samples.domain_names, np.bincount(samples.domain), strict=True):
        if count < n_clusters <= len(samples):  # too few in all are refused for both sides alike
            raise InputError(
                f"domain {brief(name)} has {count} samples, but each domain is clustered by itself into "
                f"{n_clusters} clusters: leave it out, or choose fewer clusters"
            )


def _cluster(work: Work[ConsensusSettings], features: Dataset, n_clusters: int) -> FeatureClusters:
    settings, domain, vectors = work.settings, features.samples.domain, read_all(features)
    clusters = cluster_domains(
        [vectors[domain == d] for d in range(len(features.samples.domain_names))],
        n_clusters,
        numpy_generator(work.seed, STAGE),
        width=min(WIDTH, settings.bottleneck_width),  # the axes become the bottleneck
        whitening=settings.whitening,
        choices=settings.voting,
        second=settings.second_opinion,
        lengths=features.samples.kind == "lengths",
        watch=work.watch,
    )
    # Plans come domain by domain, samples in any order.
    assignments = np.empty_like(clusters.assignments)
    assignments[np.argsort(domain, kind="stable")] = clusters.assignments
    return replace(clusters, assignments=assignments)
