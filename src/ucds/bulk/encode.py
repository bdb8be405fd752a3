"""Computes the features of one shard and writes them as a part: the task that a loop or Ray runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucds.bulk.shards import Images, Shard
from ucds.data.content import content_key
from ucds.data.decode import ByteArray, UnusableImageError, decode_image
from ucds.data.features import FeaturePart, part_path
from ucds.data.image_files import map_ahead, processors
from ucds.data.parts import describe_rows, write_part
from ucds.math.arrays import FloatArray
from ucds.training.encoding import FrozenEncoder
from ucds.training.inputs import stored_size, view_for

_BATCH = 64  # images computed at a time, as in training
_Loaded = tuple[bytes, ByteArray] | str


@dataclass(frozen=True)
class MadePart:
    """What became of one shard: number of the part and of its images, and reasons for the skipped ones."""

    number: int
    samples: int
    skipped: tuple[tuple[str, str], ...]


class PartTask:
    """Function that computes a shard and writes its part; it can be pickled, for the workers of an engine.

    Images are read and decoded in threads while the encoder computes. Batches begin with the shard, and what
    cannot be used, or is a copy of another image, takes no place in them: all who run it get the same.

    Args:
        folder: folder of the parts.
        encoder: encoder of images, on its device once it is used.
        readers: number of threads that read and decode; one a processor if ``None``.
    """

    def __init__(self, folder: Path, encoder: FrozenEncoder, readers: int | None) -> None:
        self._folder, self._encoder, self._readers = folder, encoder, readers
        self._spec = encoder.backbone.spec
        self._size, self._view = stored_size(self._spec), view_for(self._spec)

    def __call__(self, number: int, shard: Shard) -> MadePart:
        """Compute the features of a shard, and write them.

        Raises:
            NoSpaceError: the folder cannot be written.
        """
        mark, images = shard.mark(), shard.images()
        keys, rows, skipped = self._encode(images)
        good = [i for i in range(len(images.ids)) if i not in skipped]
        told = [(images.ids[i], reason) for i, reason in sorted(skipped.items())]
        described = FeaturePart(
            **describe_rows(keys, rows),
            made_of=mark,
            ids=[images.ids[i] for i in good],
            domains=None if images.domains is None else [images.domains[i] for i in good],
            skipped=told,
        )
        write_part(part_path(self._folder, number), rows, described)
        return MadePart(number, len(good), tuple(told))

    def _encode(self, images: Images) -> tuple[list[bytes], FloatArray, dict[int, str]]:
        """Return keys and features ``(m, width)`` of the images that can be used, and reasons for others."""
        keys, skipped = list[bytes](), dict[int, str]()
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
            work = map_ahead(pool, lambda i: self._load(images, i), range(len(images.ids)), 2 * _BATCH)
            pixels = different(work)
            while batch := list(islice(pixels, _BATCH)):
                inputs = torch.from_numpy(np.stack(batch)).to(self._encoder.device)
                found.append(self._encoder(self._view.test(inputs)))
        features = np.concatenate(found)
        return keys, features[[place[key] for key in keys]], skipped

    def first_inputs(self, images: Images, count: int) -> Tensor:
        """Return inputs for the encoder, of the first images that can be used, ``count`` at most."""
        with warnings.catch_warnings(action="ignore"):
            loaded = (self._load(images, position) for position in range(len(images.ids)))
            pixels = list(islice((one[1] for one in loaded if not isinstance(one, str)), count))
        empty = np.zeros((0, 3, self._size, self._size), np.uint8)
        return self._view.test(torch.from_numpy(np.stack(pixels) if pixels else empty))

    def _load(self, images: Images, position: int) -> _Loaded:
        """Return content key and pixels of an image, or the reason why it cannot be used."""
        try:
            data = images.read(position)
            return content_key(data), decode_image(data, self._size)
        except UnusableImageError as error:
            return error.reason
