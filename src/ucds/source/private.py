"""The provider's model with differential privacy: prototypes from noisy sums of frozen features.

The noise does not depend on the seed of the run: anybody who knew the seed could subtract it. So two runs
with equal seeds differ. A resumed run takes its clusters from the checkpoint, because drawing noise a second
time would spend the privacy budget a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ucds.config import ConsensusSettings
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.data.tables import read_table
from ucds.encoders.encoder import Encoder
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.onnx_files import read_last_weights
from ucds.errors import InputError, brief
from ucds.extras import require_extra
from ucds.heads import softmax
from ucds.math.arrays import DoubleArray, IntArray
from ucds.math.domain_transport import FeatureClusters
from ucds.math.privacy import noise_scale
from ucds.math.private_prototypes import DIRECTIONS, learn_private_prototypes
from ucds.math.spaces import unit_rows
from ucds.training.features import read_all
from ucds.training.fitting import LOGIT_SCALE, build_head, features_to_cluster
from ucds.training.prepare import Training
from ucds.training.seeds import numpy_generator
from ucds.training.work import Work

STAGE = "private-clusters"

LARGEST_DELTA = 1e-5
"""Delta if none is given, unless one over the number of images or persons is smaller."""

_AXES = 32  # principal axes that are found in noisy sums
_RHOS = (1e-12, 1e4)  # larger ones overflow in OpenDP
_STEPS = 5  # noisy steps of Lloyd's algorithm


class GaussianNoise:
    """Gaussian noise from OpenDP, seeded by the operating system, and OpenDP's account of what is spent.

    The budget is counted in zero-concentrated differential privacy (zCDP), see :mod:`ucds.math.privacy`.
    """

    def __init__(self) -> None:
        require_extra("privacy", "training with `dp_epsilon`")
        import opendp.prelude as opendp

        opendp.enable_features("contrib")
        self._opendp: Any = opendp
        self.spent = 0.0  # zCDP of all releases so far, by OpenDP's own account

    def __call__(self, values: DoubleArray, scale: float) -> DoubleArray:
        """Add noise of standard deviation ``scale`` to a vector that one unit changes by at most 1."""
        mechanism = self._mechanism(scale)
        self.spent += mechanism.map(1.0)
        return np.asarray(mechanism(values.tolist()), dtype=np.float64)

    def epsilon_of(self, rho: float, delta: float) -> float:
        """Compute the smallest epsilon for which rho-zCDP provably gives (epsilon, delta)-privacy.

        Source:
            C. Canonne, G. Kamath and T. Steinke, The discrete Gaussian for differential privacy, 2020
            (Corollary 13).
        """
        converted = self._opendp.c.make_zCDP_to_approxDP(self._mechanism(noise_scale(rho)))
        return float(converted.map(1.0).epsilon(delta))

    def rho_of(self, epsilon: float, delta: float) -> float:
        """Compute the largest rho for which rho-zCDP gives (epsilon, delta)-privacy."""
        enough = self._opendp.binary_search(lambda rho: self.epsilon_of(rho, delta) <= epsilon, bounds=_RHOS)
        return float(enough)

    def _mechanism(self, scale: float) -> Any:
        opendp = self._opendp
        vectors = opendp.vector_domain(opendp.atom_domain(T=float, nan=False))
        return opendp.m.make_gaussian(vectors, opendp.l2_distance(T=float), scale)


def fit_source_privately(
    work: Work[ConsensusSettings],
    encoder: Encoder,
    data: Dataset,
    n_clusters: int,
    groups: Mapping[str, str] | None,
) -> Training:
    """Learn prototypes on frozen features with differential privacy.

    The guarantee holds if the encoder has not seen the samples.
    """
    settings = work.settings
    epsilon = settings.dp_epsilon
    assert epsilon is not None
    units = number_units(data.samples, groups)
    unit = "image" if groups is None else "person"
    delta, noise = settle_delta(settings.dp_delta, units, unit), GaussianNoise()
    directions = public_directions(encoder)
    features = features_to_cluster(work, encoder, data, n_clusters)

    def cluster() -> FeatureClusters:
        vectors = read_all(features)
        found = learn_private_prototypes(
            vectors,
            data.samples.domain,
            weights_of(units),
            n_clusters,
            noise.rho_of(epsilon, delta),
            noise,
            numpy_generator(work.seed, STAGE),
            directions=directions,
            width=min(_AXES, settings.bottleneck_width),
            whitening=settings.whitening,
            steps=_STEPS,
        )
        assert noise.epsilon_of(noise.spent, delta) <= epsilon * (1 + 1e-9)
        logits = LOGIT_SCALE * (unit_rows(vectors) - found.mean) @ found.axes @ found.prototypes
        return FeatureClusters(**vars(found), assignments=softmax(logits.astype(np.float32)))

    head, _, _ = build_head(work, STAGE, features, cluster)
    guarantee = f"epsilon {epsilon!r}, delta {delta!r}, for each {unit}"
    return Training(encoder, head, features, "head", tuple(work.results), recentres=True, privacy=guarantee)


def read_groups(path: Path) -> dict[str, str]:
    """Read the person of each image from a table with columns of texts ``id`` and ``group``.

    An id is the path of an image below the folder of the domains.
    """
    table = read_table(path, ("id", "group"))
    if not {"id", "group"} <= table.keys():
        raise InputError(f"{path} has no columns id and group: add both, with the image and the person in it")
    groups: dict[str, str] = {}
    for number, (name, group) in enumerate(zip(table["id"], table["group"], strict=True), 1):
        if not (isinstance(name, str) and isinstance(group, str) and name and group):
            raise InputError(f"row {number} of {path} has no text in the column id or group")
        if groups.setdefault(name, group) != group:
            raise InputError(f"{path} gives {brief(name)} several groups: {groups[name]:.80} and {group:.80}")
    return groups


def number_units(samples: Samples, groups: Mapping[str, str] | None) -> IntArray:
    """Number the protected units: ``(n,)`` number of each sample's person, or of its content.

    Copies of one image are one unit, because an image with two units would be protected half as well.
    """
    names: list[str] | list[bytes] = list(samples.keys)
    if groups is not None:
        missing = [name for name in samples.ids if name not in groups]
        if missing:
            raise InputError(
                f"`groups` has no group for {len(missing):,} of {len(samples):,} images, such as "
                f"{brief(missing[0])}: some persons would be less protected than promised"
            )
        names = [groups[name] for name in samples.ids]
    return np.asarray(np.unique(np.array(names, dtype=object), return_inverse=True)[1], dtype=np.int64)


def weights_of(units: IntArray) -> DoubleArray:
    """Compute the weight ``(n,)`` of each sample; the weights in a unit sum to 1."""
    return np.asarray(1.0 / np.bincount(units)[units])


def settle_delta(delta: float | None, units: IntArray, unit: str) -> float:
    """Return the delta that was asked for, or the default, for units with the numbers ``(n,)``."""
    count = int(units.max()) + 1
    if delta is None:
        delta = min(LARGEST_DELTA, 1 / count)
    if delta > 1 / count:
        raise InputError(
            f"delta {delta:g} is larger than 1 / {count:,}, one per protected {unit}: a model "
            "may then reveal one of them; choose a smaller dp_delta"
        )
    return delta


def public_directions(encoder: Encoder) -> DoubleArray | None:
    """Find the directions in which the last layer of an encoder moves the features most.

    They are the left singular vectors of the layer's weights, so they are as public as the encoder. Features
    vary mostly along few of them; random directions would keep only a part of every difference.
    The ``(d, p)`` columns are orthonormal, widest first; ``None`` if no layer of the encoder returns as many
    values as there are features.
    """
    last = None
    if isinstance(encoder, GraphEncoder):
        last = read_last_weights(encoder.content, encoder.spec.width)
    if last is None:
        return None
    flat = last.reshape(len(last), -1).astype(np.float64)
    return np.asarray(np.linalg.svd(flat, full_matrices=False)[0][:, :DIRECTIONS])
