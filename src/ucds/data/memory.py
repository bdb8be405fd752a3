"""Images that are in memory already, as samples: PIL images, arrays of pixels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ucds.data.content import content_key, fingerprint
from ucds.data.decode import ByteArray, decode_image, to_square
from ucds.data.samples import Kind, Listing
from ucds.data.tables import Pictures
from ucds.errors import InputError
from ucds.math.arrays import IntArray


class MemoryImages:
    """Images in memory, brought to squares of 8-bit RGB like decoded files; those given stay as they are."""

    kind: Kind = "images"
    files: None = None

    def __init__(self, images: Iterable[object], size: int, listing: Listing | None = None) -> None:
        with warnings.catch_warnings(action="ignore"):  # remarks of the image library
            squares = [_square(image, size, position) for position, image in enumerate(images)]
        if not squares:
            raise InputError("there are no images")
        self._array = np.stack(squares)
        listing = listing or Pictures.of_one_domain(squares, len(squares))
        self.ids, self.domain, self.domain_names = listing.ids, listing.domain, listing.domain_names

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """Content key of each image."""
        return tuple(content_key(square.tobytes()) for square in self._array)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the images in their order."""
        kind = f"memory {self._array.shape[-1]}"
        return fingerprint(self.keys, self.ids, self.domain, self.domain_names, kind)

    def __len__(self) -> int:
        return len(self._array)

    def read(self, index: IntArray) -> Tensor:
        """Return a copy of the images at positions ``index``: ``(b, 3, size, size)`` uint8."""
        return torch.from_numpy(self._array[np.asarray(index, np.int64)])


def _square(image: object, size: int, position: int) -> ByteArray:
    if isinstance(image, bytes):
        return decode_image(image, size, f"image {position}")
    if (
        isinstance(image, np.ndarray)
        and image.dtype == np.uint8
        and image.ndim >= 2
        and image.shape[2:] in ((), (3,), (4,))
    ):
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise InputError(f"image {position} is neither a PIL image nor an array (h, w, 3) of uint8")
    return to_square(image, size, f"image {position}")
