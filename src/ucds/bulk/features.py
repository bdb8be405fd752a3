"""Computes the features of images under a frozen encoder, in parts: ``ucds features``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ucds.backbones import Backbone
from ucds.bulk.encode import MadePart, PartTask
from ucds.bulk.options import BulkOptions
from ucds.bulk.shards import Found, Shard, find_shards
from ucds.data.decode import DECODER_VERSION
from ucds.data.feature_folder import ENCODER_FILE, FeaturePart, Manifest, part_path, read_manifest
from ucds.data.parts import DESCRIPTION, read_description, rows_file
from ucds.data.sources import FEATURES_FILE, Source, place_of
from ucds.data.tables import csv_text
from ucds.errors import DamagedFileError, InputError, UcdsWarning
from ucds.files import refuse_inside, write_text_atomically
from ucds.training.devices import choose_device
from ucds.training.encoder_file import save_encoder
from ucds.training.encoding import FrozenEncoder, describe_encoder, find_graph, suits_graph
from ucds.training.inputs import stored_size
from ucds.training.options import CacheOptions, EncoderOptions
from ucds.training.progress import Quiet, Reporter

SKIPPED_FILE = "skipped.csv"
_NAMED = 20


@dataclass(frozen=True)
class WrittenFeatures:
    """Features that were written.

    Attributes:
        folder: their folder.
        samples: number of images that have features.
        skipped: number of images that cannot be used.
        parts: number of parts.
        made: number of parts that were made now; the others were finished before.
    """

    folder: str
    samples: int
    skipped: int
    parts: int
    made: int

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return asdict(self)

    def sentence(self) -> str:
        """Say in words what was done."""
        before = f", {self.parts - self.made:,} of them finished before" if self.made < self.parts else ""
        text = f"features of {self.samples:,} images written to {self.folder} in {self.parts:,} parts{before}"
        return text + (f"; {self.skipped:,} images skipped, see {SKIPPED_FILE}" if self.skipped else "")


def features(
    images: Source,
    out: str | Path,
    *,
    encoder: EncoderOptions | None = None,
    options: BulkOptions | None = None,
    cache: CacheOptions | None = None,
    reporter: Reporter | None = None,
) -> WrittenFeatures:
    """Compute the features of images, and write them into a folder; ``ucds features`` does the same.

    The folder is taken wherever samples are, in place of the images. After an interruption the same call goes
    on: a part that is there is not made again, unless its images have changed.

    Args:
        images: image files, see :func:`ucds.bulk.shards.find_shards`.
        out: folder of the features.
        encoder: encoder; ResNet-18 with published weights if ``None``.
        options: engine, and how it works; a loop in this process if ``None``.
        cache: place of the graph that computes the features; the user's cache folder if ``None``.
        reporter: receives progress messages; nothing is said if ``None``.

    Raises:
        InputError: images, encoder or folder cannot be used.
        NoSpaceError: the folder cannot be written.

    Warns:
        UcdsWarning: images are skipped; 20 at most are named.
    """
    options, reporter, folder = options or BulkOptions(), reporter or Quiet(), _folder_for(out, images)
    found = find_shards(images, options.shard_size)
    backbone = (encoder or EncoderOptions()).build()
    frozen = _choose_encoder(found, backbone, options, cache or CacheOptions(), reporter)
    manifest = _describe(found, frozen)
    _claim(folder, manifest, backbone)
    finished = dict(_finished(folder, manifest))
    missing = [number for number in range(len(found.shards)) if number not in finished]
    made = dict(_make(folder, frozen, found.shards, missing, options, reporter))
    _remove_others(folder, len(found.shards))
    return _conclude(folder, [*finished.values(), *made.values()], len(made))


def _folder_for(out: str | Path, images: Source) -> Path:
    if Path(out).is_file():
        raise InputError(f"{out} is a file: name a folder, which gets the features")
    if (place := place_of(images)) is not None:
        refuse_inside(Path(out), place)
    return Path(out).absolute()


def _choose_encoder(
    found: Found, backbone: Backbone, options: BulkOptions, cache: CacheOptions, reporter: Reporter
) -> FrozenEncoder:
    """Choose what computes the features, as training does."""
    remote = options.engine == "ray" and options.accelerator == "cuda"  # this machine may have none
    device = torch.device("cuda") if remote else choose_device(options.accelerator)
    encoder = FrozenEncoder(backbone, device)
    if suits_graph(backbone.spec, sum(map(len, found.shards)), device):
        inputs = PartTask(Path(), encoder, None).first_inputs

        def example(count: int) -> Tensor:
            return inputs(found.shards[0].listed(), count)

        encoder = FrozenEncoder(
            backbone, device, find_graph(backbone, example, cache.directory, reporter.say)
        )
    return encoder


def _describe(found: Found, encoder: FrozenEncoder) -> Manifest:
    backbone = encoder.backbone
    return Manifest(
        **describe_encoder(backbone),
        origin=backbone.weights,
        computed_by=encoder.computed_by,
        size=stored_size(backbone.spec),
        decoder=DECODER_VERSION,
        root=found.root,
        domain=found.domain,
        parts=[shard.mark() for shard in found.shards],
    )


def _claim(folder: Path, manifest: Manifest, backbone: Backbone) -> None:
    """Write the description of the features, or find that the folder holds others."""
    if (folder / FEATURES_FILE).is_file():
        known = read_manifest(folder)
        if not known.same_encoder(manifest) or known.root != manifest.root:
            raise InputError(
                f"{folder} holds features of other images or of another encoder: choose a new folder"
            )
    elif folder.exists() and any(folder.glob("[!.]*")):
        raise InputError(f"{folder} is in use: choose a new folder for the features")
    write_text_atomically(folder / FEATURES_FILE, manifest.model_dump_json(indent=1) + "\n")
    if not (folder / ENCODER_FILE).is_file():
        save_encoder(folder, backbone)


def _finished(folder: Path, manifest: Manifest) -> Iterator[tuple[int, MadePart]]:
    """Return an iterator over the parts that are there and whose images have not changed."""
    for number, mark in enumerate(manifest.parts):
        path = part_path(folder, number)
        if not (path.with_suffix(DESCRIPTION).exists() and rows_file(path).exists()):
            continue
        try:
            described = read_description(path, FeaturePart)
        except DamagedFileError:
            continue
        if described.made_of == mark:
            yield number, MadePart(number, len(described.ids), tuple(described.skipped))


def _make(
    folder: Path,
    encoder: FrozenEncoder,
    shards: Sequence[Shard],
    missing: Sequence[int],
    options: BulkOptions,
    reporter: Reporter,
) -> Iterator[tuple[int, MadePart]]:
    if not missing:
        return
    items = [(number, shards[number]) for number in missing]
    reporter.begin("compute features", sum(len(shard) for _, shard in items))
    done = 0
    for part in _run(folder, encoder, items, options):
        done += len(shards[part.number])
        reporter.advance(done, {})
        yield part.number, part
    reporter.end()


def _run(
    folder: Path, encoder: FrozenEncoder, items: Sequence[tuple[int, Shard]], options: BulkOptions
) -> Iterator[MadePart]:
    if options.engine == "plain":
        task = PartTask(folder, encoder, None)
        return (task(*item) for item in items)
    from ucds.bulk.ray_engine import run_on_ray

    return run_on_ray(PartTask(folder, encoder, 1), items, options)


def _remove_others(folder: Path, parts: int) -> None:
    """Remove parts that an earlier call with more images has left."""
    number = parts
    while (path := part_path(folder, number)).with_suffix(DESCRIPTION).exists():
        path.with_suffix(DESCRIPTION).unlink()
        rows_file(path).unlink(missing_ok=True)
        number += 1


def _conclude(folder: Path, parts: Sequence[MadePart], made: int) -> WrittenFeatures:
    """Name the images that cannot be used."""
    ordered = sorted(parts, key=lambda part: part.number)
    skipped = [(part.number, name, reason) for part in ordered for name, reason in part.skipped]
    samples = sum(part.samples for part in ordered)
    total = samples + len(skipped)
    for number, name, reason in skipped[:_NAMED]:
        warnings.warn(f"{name}: {reason}; skipped (part {number})", UcdsWarning, stacklevel=3)
    if skipped:
        write_text_atomically(folder / SKIPPED_FILE, csv_text(["part", "sample", "reason"], skipped))
        most = ", ".join(
            f"{count:,} in part {number}" for number, count in Counter(s[0] for s in skipped).most_common(3)
        )
        message = f"{len(skipped):,} of {total:,} images skipped ({most}): {folder}/{SKIPPED_FILE} names them"
        warnings.warn(message, UcdsWarning, stacklevel=3)
    else:
        (folder / SKIPPED_FILE).unlink(missing_ok=True)
    if not samples:
        raise InputError(f"none of the {total:,} images can be used ({skipped[0][1]}: {skipped[0][2]})")
    return WrittenFeatures(str(folder), samples, len(skipped), len(ordered), made)
