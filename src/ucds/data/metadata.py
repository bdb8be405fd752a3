"""Takes from an image file everything but its pixels, before it is sent to somebody else.

JPEG and PNG files keep their compressed pixels as they are, so that an image gives the same bytes with every
version of the libraries. All other files become PNG files.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np

from ucds.data.decode import (
    UnusableImageError,
    decode_image,
    encode_as_png,
    open_image,
    orientation_as_exif,
    to_square,
)

_COMPARED = 64  # side in pixels at which images with and without metadata are compared
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_EXIF, _JFIF, _ADOBE = b"\xff\xe1", b"\xff\xe0", b"\xff\xee"
_PLAIN_JFIF = b"JFIF\0\1\1\0\0\1\0\1\0\0"  # colours are stored in the usual way; no resolution, no preview
_SCAN, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_SCAN_END = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # a marker that is no escaped byte and no restart
_PIXEL_SEGMENTS = frozenset(bytes((0xFF, code)) for code in (*range(0xC0, 0xD0), *range(0xDA, 0xDE)))
_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")


def without_metadata(data: bytes, path: str | Path = "image") -> bytes:
    """Return an image file that decodes to the same squares and holds pixels and orientation alone.

    EXIF, comments, profiles, texts, previews, further frames, and whatever follows the image are left out.
    The ``path`` names the file in messages.

    Raises:
        UnusableImageError: the file is not an image, is damaged, or has too many pixels.
    """
    with open_image(data, path) as image:
        if not data.startswith((_JPEG, _PNG)):
            return encode_as_png(image)
        image.draft(None, (2 * _COMPARED, 2 * _COMPARED))
        expected, exif = to_square(image, _COMPARED, path), orientation_as_exif(image)
    bare = _bare_jpeg(data, exif) if data.startswith(_JPEG) else _bare_png(data, exif)
    with suppress(UnusableImageError):
        if np.array_equal(decode_image(bare, _COMPARED), expected):
            return bare
    with open_image(data, path) as image:  # the decoder forgives more than this module understands
        return encode_as_png(image)


def _bare_jpeg(data: bytes, exif: bytes) -> bytes:
    """Keep the segments that the pixels of a JPEG file need, up to the end of the image."""
    kept, place = [_JPEG, _segment(_EXIF, exif) if exif else b""], 2
    while (marker := data[place : place + 2]) not in (_JPEG_END, b""):
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        content = data[place + 4 : end]
        if marker == _SCAN:
            found = _SCAN_END.search(data, end)
            end = found.start() if found else len(data)
        if marker == _JFIF and content.startswith(b"JFIF\0"):
            kept.append(_segment(marker, _PLAIN_JFIF))
        elif marker == _ADOBE and content.startswith(b"Adobe"):
            kept.append(_segment(marker, content[:12]))  # they end with how colours are stored
        elif marker in _PIXEL_SEGMENTS:
            kept.append(data[place:end])
        place = end
    return b"".join((*kept, _JPEG_END))


def _segment(marker: bytes, content: bytes) -> bytes:
    return marker + (len(content) + 2).to_bytes(2) + content


def _bare_png(data: bytes, exif: bytes) -> bytes:
    """Keep the chunks that the pixels of a PNG file need, up to the end of the image."""
    kept, place = [_PNG], len(_PNG)
    while place < len(data):
        kind, end = data[place + 4 : place + 8], place + 12 + int.from_bytes(data[place : place + 4])
        if kind in _PIXEL_CHUNKS:
            kept.append(data[place:end])
        if kind == b"IHDR" and exif:
            chunk = b"eXIf" + exif.removeprefix(b"Exif\0\0")
            kept.append((len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4))
        place = len(data) if kind == b"IEND" else end
    return b"".join(kept)
