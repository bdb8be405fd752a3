"""Finds the clusters of samples with a finished model, in bulk; for both sides."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ucds.backbones import Backbone
from ucds.bulk.engines import BulkOptions, run_tasks
from ucds.bulk.features import are_features, encode, encoding_step
from ucds.bulk.finding import find_shards
from ucds.bulk.job import BulkResult, Job
from ucds.bulk.places import Place
from ucds.bulk.shards import Rows, Shard
from ucds.bulk.steps import AssignStep
from ucds.data.sources import Source
from ucds.models import state_digest
from ucds.training.inference import FEWEST_TO_CENTRE
from ucds.training.model_file import StoredModel
from ucds.training.prediction import Decisions
from ucds.training.progress import Reporter

Answer = Callable[[Decisions], Rows]
"""Function from the clusters of m samples to the columns of a result, which can be pickled."""


def assign(
    stored: StoredModel,
    images: Source,
    out: str | Path,
    what: str,
    answer: Answer,
    facts: Mapping[str, Any],
    options: BulkOptions,
    reporter: Reporter,
    *,
    recentred: bool = False,
) -> BulkResult:
    """Find the clusters of samples, and write them as parquet shards.

    Args:
        stored: model with its description.
        images: samples, see :func:`ucds.bulk.finding.find_shards`; or a folder of features that
            :func:`ucds.features` computed with the encoder of this model.
        out: folder of the shards, or its address.
        what: kind of the results, in one word.
        answer: columns of the results.
        facts: values that a reader of the results needs.
        options: engine, and how it works.
        reporter: receives progress messages.
        recentred: whether the samples, all of one domain, are seen from their own mean, if the model gains
            from it. Features of images are then computed first, into a folder beside ``out``.

    Raises:
        InputError: samples or folder cannot be used.
        NoSpaceError: the folder cannot be written.
    """
    place, card = Place.of(out, images), stored.card
    encoder = None
    if card.backbone.input_size is not None:
        backbone = Backbone(stored.model.encoder.backbone, card.backbone, card.weights)
        encoder = encoding_step(backbone, options)
    encoded = encoder is None or are_features(images, encoder.backbone)
    shards = find_shards(images, options.shard_size)
    head = stored.model.head()
    if recentred and card.recentres and sum(map(len, shards)) >= FEWEST_TO_CENTRE:
        if encoder is not None and not encoded:
            beside = Place(f"{place}.features")
            encode(encoder.backbone, shards, beside, options, reporter)
            shards = find_shards(str(beside), options.shard_size)
        total, n = _sum_features(shards, options)
        if n >= FEWEST_TO_CENTRE:
            head = head.recentred(total / n)
    step = AssignStep(head, answer, encoder, accelerator=options.accelerator)
    identity = {"model": state_digest(stored.model)}
    return Job(what, step, shards, facts, identity).run(place, options, reporter)


def _sum_features(shards: Sequence[Shard], options: BulkOptions) -> tuple[Tensor, int]:
    """Return the sum of the features of all samples, each brought to unit length, and their number."""
    items = (
        {"number": np.array([number]), "shard": np.array([pickle.dumps(shard)], dtype=object)}
        for number, shard in enumerate(shards)
    )
    found = sorted(
        (int(row["number"][0]), int(row["count"][0]), row["sum"][0])
        for row in run_tasks(_sum_shard, items, options)
    )
    total = np.sum([part for *_, part in found], axis=0)  # in the order of the shards, whoever was first
    return torch.from_numpy(total).float(), sum(count for _, count, _ in found)


def _sum_shard(row: Rows) -> Rows:
    features = torch.from_numpy(pickle.loads(row["shard"][0]).rows()["features"])
    total = normalize(features.double(), dim=-1).sum(0).numpy()
    return {"number": row["number"], "sum": total[None], "count": np.array([len(features)])}
