"""The target owner asks a service: about every sample, or about a chosen few."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ucds.backbones import Backbone
from ucds.choices import Accelerator
from ucds.data.dataset import Dataset
from ucds.data.images import ImageSamples
from ucds.data.samples import Samples, first_positions
from ucds.data.vectors import VectorSamples
from ucds.errors import InputError, UcdsWarning
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.query import Selector, query_labels
from ucds.labels.questions import ImageQuestions, Questions, VectorQuestions, open_questions
from ucds.target.selection import select_spread
from ucds.training.features import frozen_features
from ucds.training.inputs import CacheOptions, EncoderOptions, Inputs, open_for_training
from ucds.training.progress import Quiet, Reporter, told_to
from ucds.training.run import RunOptions
from ucds.training.runtime import Runtime


def questions_about(samples: Samples) -> Questions:
    """What to send of opened samples.

    Raises:
        UserError: the samples are neither image files nor embeddings.
    """
    if isinstance(samples, ImageSamples):
        return ImageQuestions(samples.root, samples.paths, samples.ids)
    if isinstance(samples, VectorSamples):
        return VectorQuestions(samples.array, samples.ids)
    raise InputError("only image files and embeddings can be sent to a service")


def choose_spread(
    data: Dataset, backbone: Backbone, runtime: Runtime, count: int, *, cache: Path | None
) -> Selector:
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
        first = first_positions(keys)
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
    inputs: Inputs,
    out: Path,
    options: RunOptions,
    max_queries: int | None,
    cache: CacheOptions,
    reporter: Reporter,
) -> ClusterLabels:
    """Ask for the labels of a run, or take those that an earlier attempt at it has paid for.

    Args:
        client: client of the service; not used when a run is resumed whose labels are complete.
        inputs: samples and encoder of the run.
        out: run folder; the labels are kept beside it.
        options: options of the run: whether it is resumed, seed and device.
        max_queries: number of samples to have labelled, well spread; all if ``None``.
        cache: place of frozen features.
        reporter: receives progress messages.

    Raises:
        UserError: see :func:`ucds.labels.query.query_labels`; or the labels beside the run folder are
            another model's.
    """
    samples = inputs.data.samples
    place = labels_beside(out, samples)
    if not place.exists():
        choose = None
        if max_queries is not None:
            runtime = Runtime(accelerator=options.accelerator, seed=options.seed, reporter=reporter)
            choose = choose_spread(inputs.data, inputs.backbone, runtime, max_queries, cache=cache.directory)
        return _query(client, questions_about(samples), place, choose, reporter)
    labels = ClusterLabels.load(place)
    if not options.resume:
        info = client.info()
        if (info.model, info.n_clusters) != (labels.provider, labels.n_clusters):
            raise InputError(
                f"{place} holds labels of model {labels.provider!r}, but {client.url} answers as "
                f"{info.model!r}: delete that file to ask anew, or choose another --out"
            )
    reporter.say(f"using the {len(labels.ids):,} labels that are in {place} already")
    return labels


def query(
    images: str | Path,
    out: str | Path,
    client: LabelClient,
    *,
    max_queries: int | None = None,
    encoder: EncoderOptions | None = None,
    seed: int = 0,
    accelerator: Accelerator = "auto",
    cache: CacheOptions | None = None,
    reporter: Reporter | None = None,
) -> ClusterLabels:
    """Ask a label service about samples and write a label file; ``ucds query`` does the same.

    A call that was killed goes on where it was when it is made again.

    Args:
        images: folder of images at any depth, or ``.npy`` or ``.npz`` file of embeddings.
        out: label file to write.
        client: client of the service.
        max_queries: number of samples to have labelled, well spread over the encoder's features; all if
            ``None``.
        encoder: encoder that says which samples are alike; used with ``max_queries`` only.
        seed: seed of the choice of samples.
        accelerator: device to compute features on.
        cache: place of decoded images and frozen features.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        UserError: the samples or ``out`` cannot be used, or the service cannot answer.
    """
    reporter, cache = reporter or Quiet(), cache or CacheOptions()
    if max_queries is None:
        if encoder is not None and encoder.backbone is not None:
            warnings.warn("--backbone is ignored without --max-queries", UcdsWarning, stacklevel=2)
        return _query(client, open_questions(Path(images)), Path(out), None, reporter)
    inputs = open_for_training(Path(images), "target", encoder or EncoderOptions(), cache, reporter)
    runtime = Runtime(accelerator=accelerator, seed=seed, reporter=reporter)
    choose = choose_spread(inputs.data, inputs.backbone, runtime, max_queries, cache=cache.directory)
    return _query(client, questions_about(inputs.data.samples), Path(out), choose, reporter)


def _query(
    client: LabelClient, questions: Questions, out: Path, choose: Selector | None, reporter: Reporter
) -> ClusterLabels:
    try:
        progress = told_to(reporter, "ask for labels")
        return query_labels(client, questions, out, choose=choose, progress=progress)
    finally:
        reporter.end()
