"""Removes everything but the pixels from the bytes of JPEG and PNG files.

The compressed pixels stay as they are, so that an image gives the same bytes with every version of the
libraries.
"""

from __future__ import annotations

import re
import zlib

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_EXIF, _JFIF, _ADOBE = b"\xff\xe1", b"\xff\xe0", b"\xff\xee"
_PLAIN_JFIF = b"JFIF\0\1\1\0\0\1\0\1\0\0"  # colours are stored in the usual way; no resolution, no preview
_SCAN, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_SCAN_END = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # a marker, neither an escaped byte nor a restart
_FILL = re.compile(rb"\xff+(?=\xff)")  # bytes that may stand before a marker
_PIXEL_SEGMENTS = frozenset(bytes((0xFF, code)) for code in (*range(0xC0, 0xD0), *range(0xDA, 0xDE)))
_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_COLOUR_TYPE, _COLOUR_BYTES = 25, {0: 2, 2: 6}  # place in a PNG file, and bytes of a transparent colour by it


def bare_file(data: bytes, exif: bytes | None = None) -> bytes | None:
    """Return a JPEG or PNG file without metadata; ``None`` for a file of another kind.

    The result holds the ``exif`` data that are given, maybe none, and those of the file if they are ``None``.
    """
    if data.startswith(_JPEG):
        return _bare_jpeg(data, exif)
    return _bare_png(data, exif) if data.startswith(_PNG) else None


def _bare_jpeg(data: bytes, exif: bytes | None) -> bytes:
    """Keep the segments that the pixels of a JPEG file need, up to the end of the image."""
    kept, place = [_JPEG, _segment(_EXIF, exif) if exif else b""], 2
    while (marker := data[place : place + 2]) not in (_JPEG_END, b""):
        if fill := _FILL.match(data, place):
            place = fill.end()
            continue
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        content = data[place + 4 : end]
        if marker == _SCAN:
            found = _SCAN_END.search(data, end)
            end = found.start() if found else len(data)
        if marker == _JFIF and content.startswith(b"JFIF\0"):
            kept.append(_segment(marker, _PLAIN_JFIF))
        elif marker == _ADOBE and content.startswith(b"Adobe") and len(content) >= 12:
            kept.append(_segment(marker, content[:12]))  # they end with how colours are stored
        elif marker in _PIXEL_SEGMENTS or (marker == _EXIF and exif is None):
            kept.append(data[place:end])
        place = end
    return b"".join((*kept, _JPEG_END))


def _segment(marker: bytes, content: bytes) -> bytes:
    return marker + (len(content) + 2).to_bytes(2) + content


def _is_whole(chunk: bytes, colour_type: int) -> bool:
    """Return whether a chunk names a transparent colour; without it, a picture is opaque."""
    least, content = _COLOUR_BYTES.get(colour_type, 1), chunk[8:-4]
    return len(content) >= least and zlib.crc32(chunk[4:-4]).to_bytes(4) == chunk[-4:]


def _bare_png(data: bytes, exif: bytes | None) -> bytes:
    """Keep the chunks that the pixels of a PNG file need, up to the end of the image."""
    kept, place = [_PNG], len(_PNG)
    while place < len(data):
        kind, end = data[place + 4 : place + 8], place + 12 + int.from_bytes(data[place : place + 4])
        is_kept = kind in _PIXEL_CHUNKS or (kind == b"eXIf" and exif is None)
        if is_kept or (kind == b"tRNS" and _is_whole(data[place:end], data[_COLOUR_TYPE])):
            kept.append(data[place:end])
        if kind == b"IHDR" and exif:
            chunk = b"eXIf" + exif.removeprefix(b"Exif\0\0")
            kept.append((len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4))
        place = len(data) if kind == b"IEND" else end
    return b"".join(kept)
