"""Asks a label service about the client's samples: about all of them, or about a few chosen ones."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ucds.arguments import checked
from ucds.choices import GPUS
from ucds.data.content import first_of_each
from ucds.data.sources import Source, find_samples
from ucds.errors import InputError
from ucds.files import require_writable
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.query import Selector, query_labels
from ucds.labels.questions import open_questions
from ucds.math.arrays import FloatArray, IntArray
from ucds.training.options import Compute, EncoderOptions, require_seed
from ucds.training.run_folder import files_read

if TYPE_CHECKING:  # asking about all samples needs neither
    from ucds.data.dataset import Dataset
    from ucds.encoders.encoder import Encoder

_TRIALS = 8
"""Candidates for each choice, of which the best is chosen. The number is fixed, so that a longer choice
begins with the shorter one."""


def choose_spread(data: Dataset, encoder: Encoder, compute: Compute, seed: int, count: int) -> Selector:
    """Make a selector of samples that are well spread over the frozen features of an encoder.

    The choice depends on samples, encoder and seed only, so a killed query goes on with the same one.
    Copies of a chosen sample get its label without charge. Labels of an earlier, different choice count; in
    all, ``count`` distinct samples have one.
    """
    from ucds.training.features import frozen_features

    def choose(known: Container[int]) -> Sequence[int]:
        first = first_of_each(data.samples.keys)
        distinct = np.flatnonzero(first == np.arange(len(first)))
        given = [i for i in distinct.tolist() if i in known]
        chosen = given
        if len(given) < count:
            features = frozen_features(encoder, data, compute, compute.reporter.show)
            spread = distinct[select_spread(features.samples.read(distinct), count, seed)]
            chosen = given + [i for i in spread.tolist() if i not in given][: count - len(given)]
        copies = np.flatnonzero(np.isin(first, chosen) & (first != np.arange(len(first))))
        return chosen + copies.tolist()

    return choose


def select_spread(features: FloatArray, count: int, seed: int) -> IntArray:
    """Choose samples that are well spread in feature space, by the seeding of k-means++.

    Distances are between directions, as everywhere in the method. A longer choice with the same seed begins
    with the shorter one, so the first ``m`` samples are well spread for every ``m``.
    Returned are positions among the ``(n, d)`` features in the order of choice.

    Source:
        D. Arthur and S. Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007.
    """
    from sklearn.cluster import kmeans_plusplus

    from ucds.math.spaces import unit_rows

    directions, state = unit_rows(features), np.random.RandomState(np.random.MT19937(seed))
    most = min(count, len(directions))
    _, chosen = kmeans_plusplus(directions, most, random_state=state, n_local_trials=_TRIALS)
    return np.array(list(dict.fromkeys(chosen.tolist())), dtype=np.int64)


@checked
def query(
    images: Source,
    out: str | Path,
    client: LabelClient,
    *,
    max_queries: int | None = None,
    encoder: EncoderOptions | None = None,
    seed: int = 0,
    allow_outside: bool = False,
    keep_metadata: bool = False,
    compute: Compute | None = None,
) -> ClusterLabels:
    """Ask a label service about samples and write a label file; ``ucds query`` does the same.

    The same call continues a query that was killed, and pays for no label twice.

    Args:
        images: samples, see :func:`ucds.data.sources.find_samples`; pictures in memory cannot be sent.
        out: label file to write.
        client: client of the service.
        max_queries: largest number of samples to ask about, well spread over the encoder's features; all if
            ``None``.
        encoder: encoder whose features are compared; used with ``max_queries`` only.
        seed: seed of the choice of samples.
        allow_outside: whether to send image files that lie outside the folder of images, or outside the
            folder of the list or table.
        keep_metadata: whether to send image files byte for byte, with EXIF data, comments and profiles.
        compute: device, precision, cache and reporter; the defaults if ``None``.

    Raises:
        InputError: the samples or ``out`` cannot be used, or the service takes other samples.
        ServiceUnavailableError: the service cannot be reached, or could not answer in time.
        RefusedError: the service refuses, the budget is used up, or another model answers than before.
        DamagedFileError: the journal beside ``out`` cannot be read.

    Warns:
        UcdsWarning: some samples cannot be used.
    """
    compute, choose = compute or Compute(), None
    require_seed(seed)
    if max_queries is not None and max_queries < 1:
        raise InputError(f"`max_queries` must be at least 1, not {max_queries}")
    require_writable(Path(out), ".json", inputs=files_read(None, images))
    choosing = encoder not in (None, EncoderOptions()) or compute.accelerator in GPUS or seed != 0
    if max_queries is None and choosing:
        raise InputError(
            "without `max_queries`, ucds asks about all samples: leave out encoder, `seed` and `accelerator`"
        )
    how = {"allow_outside": allow_outside, "keep_metadata": keep_metadata}
    found = find_samples(images, by_domain=False)
    questions = open_questions(found, **how)
    if max_queries is not None:
        from ucds.config import ConsensusSettings
        from ucds.data.samples import Samples
        from ucds.data.vectors import in_order
        from ucds.training.inputs import open_for_training

        if isinstance(found, Samples) and found.columns is not None:  # the journal has the service's order
            found = in_order(found, client.info().columns)
        as_it_is = ConsensusSettings()  # which train no encoder
        inputs = open_for_training(found, encoder or EncoderOptions(), compute, as_it_is)
        questions = open_questions(inputs.data.samples, **how)
        choose = choose_spread(inputs.data, inputs.encoder, compute, seed, max_queries)
    show, say = partial(compute.reporter.show, "ask for labels"), compute.reporter.say
    return query_labels(client, questions, Path(out), choose=choose, progress=show, say=say)
