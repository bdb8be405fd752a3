"""Computes the features of images under a frozen encoder, in parts: ``ucds features``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from ucds.arguments import checked
from ucds.bulk.shards import Found, Images, Shard, find_shards
from ucds.data.content import content_key
from ucds.data.decode import DECODER_VERSION, ByteArray, UnusableImageError, decode_image
from ucds.data.features import ENCODER_FILE, FeaturePart, Manifest, part_path, read_manifest
from ucds.data.folders import FEATURES_FILE
from ucds.data.image_files import map_ahead
from ucds.data.parts import describe_rows, read_description, remove_part, rows_file, write_part
from ucds.data.sources import Source, place_of
from ucds.data.tables import write_table
from ucds.encoders.encoder import Encoder
from ucds.errors import DamagedFileError, InputError, warn_of_skipped
from ucds.files import refuse_inside, require_space, require_writable, write_atomically, write_text_atomically
from ucds.math.arrays import FloatArray, processors
from ucds.showing import shows
from ucds.training.inputs import view_for
from ucds.training.options import BulkOptions, Compute, EncoderOptions

SKIPPED_FILE = "skipped.csv"
_BATCH = 64  # images that an encoder takes at a time, as in training
_Loaded = tuple[bytes, ByteArray] | str


@shows()
@dataclass(frozen=True)
class WrittenFeatures:
    """Features that were written.

    Attributes:
        folder: folder of the features.
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


class PartTask:
    """Function that computes a shard and writes its part; workers of an engine receive it pickled.

    Images are read and decoded in threads while the encoder computes. Batches begin with the shard, and leave
    out copies and images that cannot be used, so that every worker gets the same result.
    """

    def __init__(self, folder: Path, encoder: Encoder, readers: int | None) -> None:
        self._folder, self._encoder, self._readers = folder, encoder, readers
        self._spec, self._view = encoder.spec, view_for(encoder.spec)

    def __call__(self, number: int, shard: Shard) -> int:
        """Compute the features of a shard, write them, and return its number."""
        mark, images = shard.mark(), shard.images()
        keys, rows, skipped = self._encode(images)
        good = [i for i in range(len(images.ids)) if i not in skipped]
        described = FeaturePart(
            **describe_rows(keys, rows),
            made_of=mark,
            ids=[images.ids[i] for i in good],
            paths=None if images.paths is None else [images.paths[i] for i in good],
            domains=None if images.domains is None else [images.domains[i] for i in good],
            skipped=[(images.ids[i], reason) for i, reason in sorted(skipped.items())],
        )
        write_part(part_path(self._folder, number), rows, described)
        return number

    def _encode(self, images: Images) -> tuple[list[bytes], FloatArray, dict[int, str]]:
        """Return keys and features ``(m, width)`` of usable images, and reasons why others are not."""
        keys, skipped, size = list[bytes](), dict[int, str](), self._spec.stored_size
        found = [np.empty((0, self._spec.width), np.float32)]
        place: dict[bytes, int] = {}  # of each content among the features

        def different(loaded: Iterator[_Loaded]) -> Iterator[ByteArray]:
            for position, one in enumerate(loaded):
                if isinstance(one, str):
                    skipped[position] = one
                    continue
                keys.append(one[0])
                if one[0] not in place:
                    place[one[0]] = len(place)
                    yield one[1]

        # Remarks of the image library are silenced: what matters of them becomes a reason.
        with (
            ThreadPoolExecutor(self._readers or processors()) as pool,
            warnings.catch_warnings(action="ignore"),
        ):
            work = map_ahead(pool, lambda i: _load(images, i, size), range(len(images.ids)), 2 * _BATCH)
            pixels = different(work)
            while batch := list(islice(pixels, _BATCH)):
                found.append(self._encoder(self._view.test(np.stack(batch))))
        features = np.concatenate(found)
        return keys, features[[place[key] for key in keys]], skipped


def _load(images: Images, position: int, size: int) -> _Loaded:
    """Return content key and pixels of an image, or the reason why it cannot be used."""
    try:
        data = images.read(position)
        return content_key(data), decode_image(data, size)
    except UnusableImageError as error:
        return error.reason


@checked
def features(
    images: Source,
    out: str | Path,
    *,
    encoder: EncoderOptions | None = None,
    options: BulkOptions | None = None,
    compute: Compute | None = None,
) -> WrittenFeatures:
    """Compute the features of images, and write them into a folder; ``ucds features`` does the same.

    Every function takes the folder in place of the images. After an interruption the same call continues: an
    existing part is not made again, unless its images have changed.

    Args:
        images: image files, see :func:`ucds.bulk.shards.find_shards`.
        out: folder of the features.
        encoder: encoder; the one in the package if ``None``.
        options: engine of the work, with its options; a loop in this process if ``None``.
        compute: device, reporter, and the cache for encoders by name; the defaults if ``None``.

    Raises:
        InputError: images, encoder or folder cannot be used.
        NoSpaceError: the folder cannot be written.

    Warns:
        UcdsWarning: images are skipped; 20 at most are named.
    """
    options, compute, folder = options or BulkOptions(), compute or Compute(), Path(out).absolute()
    require_writable(folder / FEATURES_FILE)
    if (place := place_of(images)) is not None:
        refuse_inside(folder, place)
    found = find_shards(images, options.shard_size)
    chosen = (encoder or EncoderOptions()).find(compute)
    chosen = compute.place(chosen, elsewhere=options.engine == "ray")
    manifest, count = _describe(found, chosen), len(found.shards)
    missing = sorted(set(range(count)) - _finished(folder, manifest))
    values = chosen.spec.width * sum(len(found.shards[number]) for number in missing)
    require_space(folder, 4 * values, "or choose another `out`")
    _claim(folder, manifest, chosen)
    if missing:
        task = PartTask(folder, chosen, 1 if options.engine == "ray" else None)
        _make(task, found.shards, missing, options, compute)
    _remove_others(folder, count)
    return _conclude(folder, count, len(missing))


def _describe(found: Found, encoder: Encoder) -> Manifest:
    return Manifest(
        **encoder.describe(),
        origin=encoder.weights,
        computed_by=encoder.computed_by,
        size=encoder.spec.stored_size,
        decoder=DECODER_VERSION,
        root=found.root,
        domain=found.domain,
        parts=[shard.mark() for shard in found.shards],
    )


def _claim(folder: Path, manifest: Manifest, encoder: Encoder) -> None:
    """Write the description of the features, unless the folder holds other features."""
    if (folder / FEATURES_FILE).is_file():
        known = read_manifest(folder)
        if not known.same_encoder(manifest) or known.root != manifest.root:
            others = "holds features of other images or of another encoder"
            raise InputError(f"{folder} {others}: choose a new folder")
    elif folder.exists() and any(folder.glob("[!.]*")):
        raise InputError(f"{folder} is in use: choose a new folder for the features")
    write_text_atomically(folder / FEATURES_FILE, manifest.model_dump_json(indent=1) + "\n")
    if not (folder / ENCODER_FILE).is_file():
        write_atomically(folder / ENCODER_FILE, lambda file: file.write(save(encoder.saved())))


def _finished(folder: Path, manifest: Manifest) -> set[int]:
    """Return the numbers of the existing parts whose images have not changed."""
    finished = set[int]()
    for number, mark in enumerate(manifest.parts):
        path = part_path(folder, number)
        with suppress(InputError, DamagedFileError):  # it is missing or damaged
            if read_description(path, FeaturePart).made_of == mark and rows_file(path).exists():
                finished.add(number)
    return finished


def _make(
    task: PartTask, shards: Sequence[Shard], missing: Sequence[int], options: BulkOptions, compute: Compute
) -> None:
    items, done = [(number, shards[number]) for number in missing], 0
    show, total = partial(compute.reporter.show, "compute features"), sum(len(shard) for _, shard in items)
    show(0, total)
    made: Iterator[int] = (task(*item) for item in items)
    if options.engine == "ray":
        from ucds.bulk.ray_engine import run_on_ray

        made = run_on_ray(task, items, options.workers, on_gpu=compute.accelerator == "cuda")
    for number in made:
        done += len(shards[number])
        show(done, total)


def _remove_others(folder: Path, parts: int) -> None:
    """Remove parts, complete or not, that an earlier call with more images has left."""
    for file in sorted(folder.glob("part-*")):
        number = file.stem.removeprefix("part-")
        if number.isdecimal() and int(number) >= parts:
            remove_part(file.with_suffix(""))


def _conclude(folder: Path, parts: int, made: int) -> WrittenFeatures:
    """Name the images that cannot be used, and count the others."""
    samples, skipped = 0, list[tuple[int, str, str]]()
    for number in range(parts):
        described = read_description(part_path(folder, number), FeaturePart)
        samples += len(described.ids)
        skipped += [(number, name, reason) for name, reason in described.skipped]
    total = samples + len(skipped)
    (folder / SKIPPED_FILE).unlink(missing_ok=True)
    if skipped:
        write_table(folder / SKIPPED_FILE, ("part", "sample", "reason"), lambda: skipped)
    reasons = [f"{name} (part {number}): {reason}" for number, name, reason in skipped]
    message = f"{len(skipped):,} of {total:,} images cannot be used: {folder}/{SKIPPED_FILE} names them"
    warn_of_skipped(reasons, message)
    if not samples:
        raise InputError(f"none of the {total:,} images can be used ({skipped[0][1]}: {skipped[0][2]})")
    return WrittenFeatures(str(folder), samples, len(skipped), parts, made)
