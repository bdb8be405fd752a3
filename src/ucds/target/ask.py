"""Asks a label service about the client's samples: about all of them, or about a few chosen ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ucds.data.content import first_of_each
from ucds.data.sources import Source, find_samples
from ucds.errors import UcdsWarning
from ucds.files import require_writable
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.query import Selector, query_labels
from ucds.labels.questions import Questions, open_questions, questions_about
from ucds.math.arrays import DoubleArray, FloatArray, IntArray
from ucds.training.options import Compute, EncoderOptions
from ucds.training.progress import Reporter, told_to

if TYPE_CHECKING:  # they bring torch: asking about all samples needs none of it, and begins seconds earlier
    from ucds.backbones import Backbone
    from ucds.data.dataset import Dataset
    from ucds.data.samples import Samples
    from ucds.training.runtime import Runtime


_TRIALS = 8
"""Draws for each choice; scikit-learn's ``2 + log k`` is 6 to 9 for the usual numbers of queries."""


def choose_spread(data: Dataset, backbone: Backbone, runtime: Runtime, count: int) -> Selector:
    """Make a selector of samples that are well spread over the frozen features of an encoder.

    The choice depends on samples, encoder and seed only, so a killed query goes on with the same one.
    Copies of a chosen sample get its label without charge. Labels of an earlier, different choice count:
    only the missing samples are chosen anew, far from the labelled ones.

    Args:
        data: samples and views.
        backbone: encoder whose features are compared.
        runtime: device to compute on, and seed of the choice.
        count: number of distinct samples to have labelled.
    """
    from ucds.training.features import frozen_features

    def choose(known: Mapping[bytes, int]) -> Sequence[int]:
        keys = data.samples.keys
        first = first_of_each(keys)
        distinct = np.flatnonzero(first == np.arange(len(first)))
        given = [i for i in distinct.tolist() if keys[i] in known]
        chosen = given
        if len(given) < count:
            features = frozen_features(backbone, data, runtime, batch_size=256)
            rows = features.samples.read(distinct).numpy()
            chosen = distinct[select_spread(rows, count, runtime.seed)].tolist()
            if not set(given) <= set(chosen):
                places = np.searchsorted(distinct, given)
                more = select_spread(rows, count - len(given), runtime.seed, given=places)
                chosen = given + distinct[more].tolist()
        copies = np.flatnonzero(np.isin(first, chosen) & (first != np.arange(len(first))))
        return chosen + copies.tolist()

    return choose


def select_spread(
    features: FloatArray, count: int, seed: int, *, given: Sequence[int] | IntArray = ()
) -> IntArray:
    """Choose samples that are well spread in feature space, by the seeding of k-means++.

    Each new sample is drawn with a probability proportional to its squared distance from the nearest one
    chosen so far (Arthur and Vassilvitskii, SODA 2007). Of eight such draws the one that leaves the smallest
    sum of squared distances is kept, as scikit-learn does: always taking the farthest sample would spend the
    queries on outliers. Distances are between directions, ``2 - 2 cos``, as everywhere in the method.

    A longer choice with the same seed begins with the shorter one, so the first ``m`` samples are
    well spread for every ``m``.

    Args:
        features: ``(n, d)`` features of the samples.
        count: number of samples to choose; fewer are returned where fewer samples differ.
        seed: seed of the random draws; equal seeds give equal choices.
        given: positions that are chosen already; they are not returned again.

    Returns:
        Positions in the order of choice, at most ``count``.
    """
    from ucds.math.spaces import unit_rows

    directions, rng = unit_rows(features), np.random.default_rng(seed)

    def distances_from(positions: Sequence[int] | IntArray) -> DoubleArray:
        """Compute squared distances ``(m, n)`` of some directions from all; what rounding left becomes 0."""
        squared = 2.0 - 2.0 * (directions[positions] @ directions.T).astype(np.float64)
        return np.where(squared < 1e-5, 0.0, squared)

    distances = np.full(len(directions), 4.0)  # as far as two directions can lie apart
    for position in given:
        distances = np.minimum(distances, distances_from([position])[0])
    chosen: list[int] = []
    while len(chosen) < count and distances.any():
        candidates = rng.choice(len(directions), size=_TRIALS, p=distances / distances.sum())
        left = np.minimum(distances, distances_from(candidates))
        best = int(left.sum(1).argmin())
        distances = left[best]
        distances[candidates[best]] = 0.0
        chosen.append(int(candidates[best]))
    return np.array(chosen, dtype=np.int64)


def _questions_about(samples: Samples) -> Questions:
    from ucds.data.images import ImageSamples

    return questions_about(samples.files if isinstance(samples, ImageSamples) else samples)


def query(
    images: Source,
    out: str | Path,
    client: LabelClient,
    *,
    max_queries: int | None = None,
    encoder: EncoderOptions | None = None,
    seed: int = 0,
    compute: Compute | None = None,
) -> ClusterLabels:
    """Ask a label service about samples and write a label file; ``ucds query`` does the same.

    The same call continues a query that was killed, and pays for no label twice.

    Args:
        images: samples, see :func:`ucds.data.sources.find_samples`; pictures in memory cannot be sent.
        out: label file to write.
        client: client of the service.
        max_queries: number of samples to have labelled, well spread over the encoder's features; all if
            ``None``.
        encoder: encoder whose features are compared; used with ``max_queries`` only.
        seed: seed of the choice of samples.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the samples or ``out`` cannot be used, or the service takes other samples.
        ServiceUnavailableError: the service cannot be reached, or could not answer in time.
        RefusedError: the service refuses, the budget is used up, or another model answers than before.
        DamagedFileError: the journal beside ``out`` cannot be read.

    Warns:
        UcdsWarning: some samples cannot be used, or ``encoder`` is ignored.
    """
    compute = compute or Compute()
    require_writable(Path(out))
    if max_queries is None:
        if encoder is not None and encoder.backbone is not None:
            warnings.warn("--backbone is ignored without --max-queries", UcdsWarning, stacklevel=2)
        return _query(client, open_questions(images), Path(out), None, compute.reporter)
    from ucds.training.inputs import open_for_training
    from ucds.training.runtime import Runtime

    runtime = Runtime(compute, seed=seed)
    found = find_samples(images, by_domain=False)
    inputs = open_for_training(found, encoder or EncoderOptions(), compute)
    choose = choose_spread(inputs.data, inputs.backbone, runtime, max_queries)
    return _query(client, _questions_about(inputs.data.samples), Path(out), choose, compute.reporter)


def _query(
    client: LabelClient, questions: Questions, out: Path, choose: Selector | None, reporter: Reporter
) -> ClusterLabels:
    try:
        progress = told_to(reporter, "ask for labels")
        return query_labels(client, questions, out, choose=choose, progress=progress, say=reporter.say)
    finally:
        reporter.end()
