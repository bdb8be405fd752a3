"""Refuse files that are built to keep a decoder busy, by their structure, before anything is decoded.

The bounds are far above what cameras, browsers and image editors write.
"""

from __future__ import annotations

import io
import re
import struct
from contextlib import suppress

from PIL import Image

MAX_SCANS = 100  # progressive JPEG; encoders write about ten
MAX_PARTS = 4096  # segments, chunks or blocks beside the pixels
MAX_PIXEL_CHUNKS = 100_000  # pieces of a PNG's pixels
MAX_REMARK_BYTES = 2**20  # comments, and bytes between the parts that mean nothing
_USUAL_TILE = 2**20  # pixels
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # tags of TIFF

_JPEG_END, _JPEG_SCAN, _JPEG_COMMENT = 0xD9, 0xDA, 0xFE
# A marker and its fill bytes; escaped bytes and restarts within a scan are none. The first conditions keep
# the search linear: it never begins in the middle of fill bytes, nor looks at them twice.
_JPEG_MARKER = re.compile(rb"(?<!\xff)\xff++[^\x00\x01\xd0-\xd7\xff]")
_GIF_BLOCK = re.compile(rb"[!,;]")  # extension, image, end


class TooElaborateError(ValueError):
    """A file with far more parts than an image needs."""


def check_structure(data: bytes) -> None:
    """Make sure that a file has no more parts than an image needs; damage is left for the decoder to find.

    Args:
        data: bytes of the file.

    Raises:
        TooElaborateError: there are too many scans, parts or bytes of comments, or too large tiles.
    """
    if data[:3] == b"\xff\xd8\xff":
        _check_jpeg(data)
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        _check_png(data)
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        _check_gif(data)
    elif data[:2] in (b"II", b"MM"):
        _check_tiff(data)


def _check_tiff(data: bytes) -> None:
    """Refuse tiles of more than a million pixels that are more than twice as large as the image."""
    pixels = most = 0
    with suppress(Exception), Image.open(io.BytesIO(data), formats=["TIFF"]) as image:  # reads the tags only
        tags = getattr(image, "tag_v2", {})
        pixels = int(tags[_TILE_WIDTH]) * int(tags[_TILE_LENGTH])
        most = max(_USUAL_TILE, 2 * image.width * image.height)
    if pixels > most:
        raise TooElaborateError("tiles much larger than the image")


def _check_jpeg(data: bytes) -> None:
    position, scans, parts, remarks = 2, 0, 0, 0
    while found := _JPEG_MARKER.search(data, position):
        kind, length = data[found.end() - 1], int.from_bytes(data[found.end() : found.end() + 2])
        if kind == _JPEG_END:
            return
        remarks += found.end() - found.start() - 2  # fill bytes
        if scans == 0:
            remarks += found.start() - position
        if kind == _JPEG_COMMENT:
            remarks += length
        scans, parts = scans + (kind == _JPEG_SCAN), parts + 1
        _check_counts(parts, remarks)
        if scans > MAX_SCANS:
            raise TooElaborateError(f"more than {MAX_SCANS} scans")
        position = found.end() + length
    if scans == 0:
        _check_counts(parts, remarks + len(data) - position)


def _check_png(data: bytes) -> None:
    position, pieces, parts = 8, 0, 0
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IEND":
            return
        if kind == b"IDAT":
            pieces += 1
        else:
            parts += 1
        _check_counts(parts, 0)
        if pieces > MAX_PIXEL_CHUNKS:
            raise TooElaborateError(f"more than {MAX_PIXEL_CHUNKS:,} pieces of pixels")
        position += 12 + length


def _check_gif(data: bytes) -> None:
    """Look at what stands before the first image."""
    position = 13 + (3 << (data[10] & 7) + 1 if len(data) > 10 and data[10] & 0x80 else 0)
    parts = remarks = 0
    while found := _GIF_BLOCK.search(data, position):
        _check_counts(parts, remarks := remarks + found.start() - position)
        if found[0] != b"!":
            return
        position = found.end() + 1
        while position < len(data) and (length := data[position]):
            position, parts, remarks = position + 1 + length, parts + 1, remarks + length
            _check_counts(parts, remarks)
        position += 1
    _check_counts(parts, remarks + len(data) - position)


def _check_counts(parts: int, remarks: int) -> None:
    if parts > MAX_PARTS:
        raise TooElaborateError(f"more than {MAX_PARTS:,} parts beside the pixels")
    if remarks > MAX_REMARK_BYTES:
        raise TooElaborateError("more than 1 MiB of comments or empty bytes")
