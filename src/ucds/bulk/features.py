"""Computes the features of images under a frozen encoder, in bulk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ucds.backbones import Backbone
from ucds.bulk.engines import BulkOptions
from ucds.bulk.finding import find_shards
from ucds.bulk.job import JOB_FILE, BulkResult, Job, read_job
from ucds.bulk.places import Place
from ucds.bulk.shard_files import shard_name
from ucds.bulk.shards import Shard
from ucds.bulk.steps import EncodeStep
from ucds.data.decode import DECODER_VERSION
from ucds.data.sources import Source
from ucds.errors import InputError
from ucds.models import state_digest
from ucds.training.options import EncoderOptions
from ucds.training.progress import Quiet, Reporter

FEATURES = "features"


def features(
    images: Source,
    out: str | Path,
    *,
    encoder: EncoderOptions | None = None,
    by_domain: bool = False,
    options: BulkOptions | None = None,
    reporter: Reporter | None = None,
) -> BulkResult:
    """Compute the features of images, and write them as parquet shards; ``ucds features`` does the same.

    Each shard has the columns ``sample`` (ids), ``content`` (content keys) and ``features``, and ``domain``
    if asked for. A shard that is there already is not made again.

    Args:
        images: samples, see :func:`ucds.bulk.finding.find_shards`.
        out: folder of the shards, or its address in an object store.
        encoder: encoder; ResNet-18 with published weights if ``None``.
        by_domain: whether ``images`` holds one folder a domain, whose names the shards then hold.
        options: engine, and how it works; a loop in this process if ``None``.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: images, encoder or folder cannot be used.
        NoSpaceError: the folder cannot be written.
    """
    options, place = options or BulkOptions(), Place.of(out, images)
    shards = find_shards(images, options.shard_size, by_domain=by_domain)
    backbone = (encoder or EncoderOptions()).build()
    return encode(backbone, shards, place, options, reporter or Quiet())


def encode(
    backbone: Backbone, shards: list[Shard], place: Place, options: BulkOptions, reporter: Reporter
) -> BulkResult:
    """Compute the features of shards of images under an encoder; see :func:`features`."""
    if shards[0].holds_vectors:
        raise InputError("an encoder takes images, not embeddings")
    step = encoding_step(backbone, options)
    facts = describe_encoder(backbone)
    return Job(FEATURES, step, shards, facts, {}).run(place, options, reporter)


def encoding_step(backbone: Backbone, options: BulkOptions) -> EncodeStep:
    """Make the step that computes the features of images under an encoder."""
    return EncodeStep(
        backbone,
        accelerator=options.accelerator,
        readers=options.readers,
    )


def describe_encoder(backbone: Backbone) -> dict[str, Any]:
    """Describe an encoder for JSON: equal descriptions mean equal features."""
    spec = asdict(backbone.spec)
    return {
        "backbone": {
            name: list(value) if isinstance(value, tuple) else value for name, value in spec.items()
        },
        "weights": state_digest(backbone.module),
        "decoder": DECODER_VERSION,
    }


def are_features(source: Source, backbone: Backbone) -> bool:
    """Return whether a folder holds the features of images under an encoder.

    Raises:
        InputError: it holds those of another encoder, or some are still missing.
        DamagedFileError: the folder's description is damaged.
    """
    if not isinstance(source, str | Path):
        return False
    place = Place(str(source))
    names = place.names()
    card = read_job(place) if JOB_FILE in names else {}
    if card.get("what") != FEATURES:
        return False
    if any(card.get(name) != value for name, value in describe_encoder(backbone).items()):
        raise InputError(f"{source} holds features of another encoder than this model's: compute them anew")
    if any(shard_name(number) not in names for number in range(card["shards"])):
        raise InputError(f"{source} does not hold all features yet: finish the command that computes them")
    return True
