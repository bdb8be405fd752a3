"""Tests whether samples that are new to a run fit what the run knows."""

from __future__ import annotations

import numpy as np

from ucds.data.content import keys_of
from ucds.data.dataset import Dataset
from ucds.data.samples import subset
from ucds.encoders.spec import LENGTHS
from ucds.math import novelty
from ucds.math.arrays import DoubleArray, FloatArray
from ucds.math.corrections import ASIDE
from ucds.target.remembered import Remembered
from ucds.training.loaded import Model
from ucds.training.seeds import numpy_generator

_TOGETHER = 50_000  # samples whose features are held in memory


def fit(model: Model, data: Dataset, remembered: Remembered, features: FloatArray) -> DoubleArray | None:
    """Compute the p-value ``(n,)`` of each sample; NaN for those that the run knows by their content.

    ``None`` if the run knows all samples, or if the encoder was trained on the run's samples: such an encoder
    fits these better than new samples.

    Args:
        model: model of the run.
        data: samples that were opened for the model.
        remembered: samples of the run.
        features: ``(m, d_f)`` bottleneck features of the remembered samples.
    """
    new = np.flatnonzero(~np.isin(keys_of(data.samples.keys).array, keys_of(remembered.keys).array))
    if not len(new) or model.stored.card.tune == "full":
        return None
    found = np.full(len(data.samples), np.nan)
    rng, lengths = numpy_generator(0, "fits"), model.stored.card.encoder.name == LENGTHS
    n_clusters = len(np.setdiff1d(remembered.own, [ASIDE]))
    known = features[novelty.draw_known(remembered.own, rng)]
    for rows in np.array_split(new, -(-len(new) // _TOGETHER)):
        given = model.outputs(Dataset(subset(data.samples, rows), data.view)).features
        found[rows] = novelty.fit(known, given, n_clusters, rng, lengths)
    return found
