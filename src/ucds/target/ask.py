"""The target owner asks a service: about every sample, or about a chosen few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ucds.backbones import Backbone
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, VectorSamples
from ucds.errors import UserError
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.query import Choice, query_labels
from ucds.labels.questions import ImageQuestions, Questions, VectorQuestions
from ucds.target.selection import select_spread
from ucds.training.features import frozen_features
from ucds.training.progress import Reporter, told_to
from ucds.training.runtime import Runtime
from ucds.training.stage import TrainingData


def questions_about(samples: Samples) -> Questions:
    """What to send of opened samples.

    Raises:
        UserError: the samples are neither image files nor embeddings.
    """
    if isinstance(samples, ImageSamples):
        return ImageQuestions(samples.root, samples.paths, samples.ids)
    if isinstance(samples, VectorSamples):
        return VectorQuestions(samples.array, samples.ids)
    raise UserError("only image files and embeddings can be sent to a service")


def choose_spread(
    data: TrainingData, backbone: Backbone, runtime: Runtime, count: int, *, cache: Path | None
) -> Choice:
    """Choose samples to ask about that are well spread over the features of the owner's own encoder.

    The choice depends on samples, encoder and seed only, so a killed query goes on with the same one.
    Copies of a chosen sample are labelled along with it, for free. Labels from an earlier, different
    choice count: only what is missing is chosen anew, far from them.

    Args:
        data: samples and views.
        backbone: whose frozen features say what is alike.
        runtime: where to compute them; its seed decides between equals.
        count: distinct samples to have labelled.
        cache: folder for the features, where ``tune = "head"`` finds them again.
    """

    def choose(known: Mapping[bytes, int]) -> Sequence[int]:
        keys = data.samples.keys
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        given = sorted(i for key, i in first.items() if key in known)
        chosen = given
        if len(given) < count:
            distinct = np.array(sorted(first.values()), dtype=np.int64)
            backbone.module.to(runtime.device)
            features = frozen_features(backbone, data, runtime, cache, batch_size=_BATCH_SIZE)
            rows = features.samples.read(distinct).numpy()
            chosen = distinct[select_spread(rows, count, runtime.seed)].tolist()
            if not set(given) <= set(chosen):
                places = np.searchsorted(distinct, given)
                more = select_spread(rows, count - len(given), runtime.seed, given=places)
                chosen = given + distinct[more].tolist()
        wanted = {keys[i] for i in chosen}
        copies = [i for i, key in enumerate(keys) if key in wanted and first[key] != i]
        return chosen + copies

    return choose


_BATCH_SIZE = 256


def labels_beside(out: Path, samples: Samples) -> Path:
    """Where ``train-target --url`` keeps its labels: beside the run folder, which must start empty.

    The name holds the fingerprint of the samples: another folder's labels are never taken for theirs,
    though its files may have the same names.
    """
    place = out.resolve()
    return place.with_name(f"{place.name}.labels-{samples.fingerprint[:8]}.json")


def ask_for_run(
    client: LabelClient,
    samples: Samples,
    out: Path,
    *,
    resume: bool,
    choose: Choice | None,
    reporter: Reporter,
) -> ClusterLabels:
    """Ask for the labels of a run, or take those that an earlier attempt at it has paid for.

    Args:
        client: of the service; not spoken to when a run is resumed whose labels are complete.
        samples: of the run.
        out: the run folder; the labels are kept beside it.
        resume: whether the run was started before.
        choose: which samples to ask about; all if ``None``.
        reporter: told of progress.

    Raises:
        UserError: see :func:`ucds.labels.query.query_labels`; or the labels beside the run folder are
            another model's.
    """
    place = labels_beside(out, samples)
    if not place.exists():
        try:
            progress = told_to(reporter, "ask for labels")
            return query_labels(client, questions_about(samples), place, choose=choose, progress=progress)
        finally:
            reporter.end()
    labels = ClusterLabels.load(place)
    if not resume:
        info = client.info()
        if (info.model, info.n_clusters) != (labels.provider, labels.n_clusters):
            raise UserError(
                f"{place} holds labels of model {labels.provider!r}, but {client.url} answers as "
                f"{info.model!r}: delete that file to ask anew, or choose another --out"
            )
    reporter.say(f"using the {len(labels.ids):,} labels that are in {place} already")
    return labels
