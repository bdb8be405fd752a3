"""Thumbnails of images, many in one JPEG sheet, small enough for one page with thousands of them."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ucds.data import features
from ucds.data.samples import Samples
from ucds.math.arrays import IntArray, processors
from ucds.target.known import Gathered

Thumbnails = NDArray[np.uint8]
Images = Samples | features.Pictures | Gathered
"""Images that are read by position: image samples, or those that features were computed from."""

COLUMNS = 16
"""Thumbnails in a row of a sheet, and rows of a sheet: 256 thumbnails are decoded at a time."""

MOST_BYTES = 16_000_000
"""Bound on all sheets together; base64 makes 21.3 MB of it, which leaves room in a page of 25 MB."""

_SIDES = ((1_500, 128), (6_000, 96))  # largest number of images for thumbnails of a size in pixels
_SMALLEST_SIDE = 64
_QUALITIES = (80, 65, 50, 35, 20)
_BATCH = 64


def shrink(images: Images, positions: IntArray) -> Thumbnails:
    """Read images as thumbnails ``(n, side, side, 3)``; the more images, the smaller the side."""
    side = next((side for most, side in _SIDES if len(positions) <= most), _SMALLEST_SIDE)
    out = np.empty((len(positions), side, side, 3), np.uint8)
    with ThreadPoolExecutor(processors()) as threads:
        for start in range(0, len(positions), _BATCH):
            pixels = images.read(positions[start : start + _BATCH]).transpose(0, 2, 3, 1)
            for place, thumbnail in enumerate(threads.map(resize, pixels, repeat(side)), start):
                out[place] = thumbnail
    return out


def resize(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Resize a picture ``(h, w, 3)`` to a square, by averages over areas."""
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BOX))


def lay_out(pictures: Thumbnails) -> tuple[bytes, ...]:
    """Lay thumbnails out in sheets, and return a JPEG file of each, of the best quality that fits.

    A sheet has ``COLUMNS`` thumbnails in a row, and at most as many rows; all fit into ``MOST_BYTES``.
    """
    per_sheet = COLUMNS * COLUMNS
    sheets = [pictures[start : start + per_sheet] for start in range(0, len(pictures), per_sheet)]
    with ThreadPoolExecutor(processors()) as threads:  # each one takes 60 MB
        for quality in _QUALITIES:
            files = tuple(threads.map(_encode, sheets, repeat(quality)))
            if sum(map(len, files)) <= MOST_BYTES:
                break
    return files


def _compose(pictures: Thumbnails) -> Image.Image:
    side, rows = pictures.shape[1], -(-len(pictures) // COLUMNS)
    grid = np.zeros((rows * COLUMNS, side, side, 3), np.uint8)
    grid[: len(pictures)] = pictures
    sheet = grid.reshape(rows, COLUMNS, side, side, 3).transpose(0, 2, 1, 3, 4)
    return Image.fromarray(np.ascontiguousarray(sheet.reshape(rows * side, COLUMNS * side, 3)))


def _encode(pictures: Thumbnails, quality: int) -> bytes:
    file = io.BytesIO()
    # WebP saves a quarter of the bytes, and takes twenty times as long.
    _compose(pictures).save(file, "JPEG", quality=quality)
    return file.getvalue()
