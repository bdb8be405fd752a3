"""The provider's model with differential privacy: prototypes from noisy sums of frozen features.

The noise is not drawn from the seed of the run: whoever knows the seed could subtract it. So two runs of
equal seed differ, and a resumed run takes its clusters from the checkpoint, because noise that is drawn a
second time would have to be paid for a second time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from ucds.backbones import Backbone
from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.errors import InputError
from ucds.math.arrays import DoubleArray, FloatArray
from ucds.math.claims import PrivacyClaim, ProtectedUnit
from ucds.math.privacy import epsilon_of, rho_of
from ucds.math.private_prototypes import learn_private_prototypes
from ucds.math.spaces import unit_rows
from ucds.source.protected import make_claim, number_units, weights_of
from ucds.source.public_directions import public_directions
from ucds.training.fitting import (
    LOGIT_SCALE,
    FeatureClusters,
    build_model,
    features_to_cluster,
    read_all,
    remember,
)
from ucds.training.prepare import TrainedModel, conclude
from ucds.training.seeds import numpy_generator
from ucds.training.session import Session

STAGE = "private-clusters"

_AXES = 32  # principal axes that are found in noisy sums
_STEPS = 5  # noisy steps of Lloyd's algorithm


class GaussianNoise:
    """Gaussian noise from OpenDP, whose generator is seeded by the operating system.

    Attributes:
        spent: zCDP of all releases so far, by OpenDP's own account.

    Raises:
        InputError: OpenDP is not installed.
    """

    def __init__(self) -> None:
        try:
            import opendp.prelude as opendp
        except ImportError:
            raise InputError("training with --dp-epsilon needs OpenDP: pip install 'ucds[privacy]'") from None
        opendp.enable_features("contrib")
        self._opendp = opendp
        self.spent = 0.0

    def __call__(self, values: DoubleArray, scale: float) -> DoubleArray:
        """Add noise of standard deviation ``scale`` to a vector that one unit changes by at most 1."""
        opendp = self._opendp
        vectors = opendp.vector_domain(opendp.atom_domain(T=float, nan=False))
        mechanism = opendp.m.make_gaussian(vectors, opendp.l2_distance(T=float), scale)
        self.spent += mechanism.map(1.0)
        return np.asarray(mechanism(values.tolist()), dtype=np.float64)


def fit_source_privately(
    session: Session[ConsensusSettings],
    backbone: Backbone,
    data: Dataset,
    n_clusters: int,
    groups: Mapping[str, str] | None,
) -> TrainedModel:
    """Learn prototypes on frozen features with differential privacy.

    Args:
        session: the run, with the settings of the method.
        backbone: pre-trained encoder; the guarantee holds if it has not seen the samples.
        data: source samples and views.
        n_clusters: number of clusters, K.
        groups: person of each sample by id; single images are protected if ``None``.

    Raises:
        InputError: there are too few samples, delta is too large, a sample has no group, or OpenDP is not
            installed.
    """
    settings = session.settings
    assert settings.dp_epsilon is not None
    units = number_units(data.samples, groups)
    unit: ProtectedUnit = "image" if groups is None else "person"
    claim, noise = make_claim(settings.dp_epsilon, settings.dp_delta, units, unit), GaussianNoise()
    features, weights = features_to_cluster(session, backbone, data, n_clusters), weights_of(units)

    def cluster() -> FeatureClusters:
        directions = public_directions(backbone)
        return _cluster(session, read_all(features), data, weights, n_clusters, claim, noise, directions)

    found = remember(session, STAGE, cluster)
    training, _ = build_model(session, STAGE, backbone, features, found, n_clusters)
    return replace(conclude(session, training, data), recentres=True, privacy=claim)


def _cluster(
    session: Session[ConsensusSettings],
    vectors: FloatArray,
    data: Dataset,
    weights: DoubleArray,
    n_clusters: int,
    claim: PrivacyClaim,
    noise: GaussianNoise,
    directions: DoubleArray | None,
) -> FeatureClusters:
    settings, started = session.settings, time.monotonic()
    found = learn_private_prototypes(
        vectors,
        data.samples.domain,
        weights,
        n_clusters,
        rho_of(claim.epsilon, claim.delta),
        noise,
        numpy_generator(session.runtime.seed, STAGE),
        directions=directions,
        width=min(_AXES, settings.bottleneck_width),
        whitening=settings.whitening,
        steps=_STEPS,
    )
    assert epsilon_of(noise.spent, claim.delta) <= claim.epsilon * (1 + 1e-9)
    logits = LOGIT_SCALE * (unit_rows(vectors) - found.mean) @ found.axes @ found.prototypes
    return FeatureClusters(
        found.axes,
        found.mean,
        found.prototypes,
        found.proportions,
        torch.from_numpy(logits).softmax(1).numpy(),
        time.monotonic() - started,
        variances=np.ones(found.axes.shape[1], dtype=np.float32),  # those of the samples are not paid for
    )
