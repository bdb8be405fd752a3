"""Bounds on the decoding of one image; its header is compared with them before memory is taken.

A client and a label service use the same bounds. A service also decodes in processes that can be killed.
"""

from __future__ import annotations

import io
import struct
import time
from dataclasses import dataclass
from typing import Any

from PIL import Image

from ucds.errors import UserError

# What C libraries take some five seconds for, which nothing can interrupt there.
_MOST_SCANNED = 3 * 10**9  # pixels of a JPEG times its scans, each of which passes over the whole image
_MOST_WAVELETS = 40 * 2**20  # bytes of a JPEG 2000
_BYTES_A_PIXEL = {"1": 1, "L": 1, "P": 1} | dict.fromkeys(("I;16", "I;16B", "I;16L", "I;16N"), 2)
_BESIDE_A_PIXEL = {"WEBP": 14, "AVIF": 12, "HEIF": 5}  # bytes that these decoders hold beside the image
_START_OF_SCAN, _CODESTREAM, _CODING_STYLE = b"\xff\xda", b"\xff\x4f\xff\x51", b"\xff\x52"


class UnusableImageError(UserError):
    """A file that cannot be used as an image; the message names the file and the reason."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Bounds:
    """Limits on what the decoding of one image may take; the defaults are a client's."""

    pixels: int = 2**30 // 12  # that the header names; Pillow's own bound for suspicious files
    memory: int = 448 * 2**20  # bytes of memory, with those of the file
    seconds: float = 5.0  # processor time of decoders in Python; sizes bound that of others

    def require(self, pixels: int, memory: int = 0) -> None:
        """Refuse more pixels or bytes of memory; raises :class:`UnusableImageError`."""
        if pixels > self.pixels:
            raise UnusableImageError("image", f"too many pixels (over {self.pixels / 1e6:.0f} million)")
        if memory > self.memory:
            raise UnusableImageError("image", f"takes too much memory (over {self.memory // 2**20} MiB)")


class TimedFile(io.BytesIO):
    """File in memory that can be read only within some seconds of this thread's processor time."""

    def __init__(self, data: bytes, seconds: float) -> None:
        super().__init__(data)
        self._seconds, self._end = seconds, time.thread_time() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        """Read some bytes; :class:`UnusableImageError` when the time is over."""
        if time.thread_time() > self._end:
            raise UnusableImageError("image", f"not decoded within {self._seconds:g} seconds")
        return super().read(size)


def require_memory(image: Image.Image, pixels: int, data: bytes, size: int, bounds: Bounds) -> int:
    """Return the bytes of memory that it takes to bring an opened image to a square of some size.

    The image is not decoded yet, and has the size that it will be decoded at. Its header names ``pixels``.
    """
    held = image.width * image.height * _BYTES_A_PIXEL.get(image.mode, 4)
    beside, kind = pixels * _BESIDE_A_PIXEL.get(image.format or "", 0), image.format
    if kind in ("JPEG", "MPO"):
        beside = _coefficients(image, pixels, data.count(_START_OF_SCAN))
    elif kind == "TIFF":
        beside = _tile(image) + held * (0x0112 in image.tag_v2)  # type: ignore[attr-defined]  # turned upright
    elif kind == "JPEG2000" and data:
        beside = _wavelets(data)
    elif kind == "HEIF":
        beside *= 1 + (image.mode == "RGBA") + (image.info.get("bit_depth", 8) > 8)
    elif kind == "PNG" and image.mode == "RGB" and "transparency" in image.info:
        beside = 16 * pixels
    narrow = 4 * size * image.height + 20 * image.width  # the columns of the square, and one row on its way
    bounds.require(pixels, needed := len(data) + held + beside + narrow)
    return needed


def _coefficients(image: Any, pixels: int, scans: int) -> int:
    """Return the bytes that a JPEG of several scans holds until its last scan; a single scan holds none."""
    if scans * pixels > _MOST_SCANNED:
        raise UnusableImageError("image", f"too many scans (over {_MOST_SCANNED // pixels} of its size)")
    if scans < 2 and "progressive" not in image.info:
        return 0
    shares = [across * down for _, across, down, _ in image.layer]
    return int(2 * pixels * sum(shares) // max(shares))


def _tile(image: Any) -> int:
    """Return the bytes of one tile or strip of a TIFF: it is unpacked whole, and may exceed the image."""
    tags = image.tag_v2
    if image.info["compression"] == "raw":
        return 0
    across, down = tags.get(322, tags[256]), tags.get(323, min(tags[257], tags.get(278, tags[257])))
    return int(across * down * max(4, tags.get(277, 1) * max(tags.get(258, (1,))) // 8))


def _wavelets(data: bytes) -> int:
    """Return the bytes of one tile of a JPEG 2000, and of its decoder's notes on each block and tile."""
    if len(data) > _MOST_WAVELETS:
        raise UnusableImageError("image", f"too long a JPEG 2000 (over {_MOST_WAVELETS // 2**20} MiB)")
    start = data.index(_CODESTREAM)
    style = data[data.index(_CODING_STYLE, start) :][:50]
    width, height, _, _, across, down, left, top, channels = struct.unpack_from(">8IH", data, start + 8)
    tiles = -(-(width - left) // across) * -(-(height - top) // down)
    samples = min(across, width) * min(down, height) * channels
    precincts = style[14 : 15 + style[9]] if style[4] & 1 else b""
    block = min(style[10] + style[11] + 4, *((one & 15) + (one >> 4) for one in precincts), 12)
    return int(5 * samples + (200 * samples >> block) + 12_000 * tiles)
