"""Small files that keep a decoder busy or take its memory: the worst that were sent to the label service."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def slow_jpeg2000(side: int = 5780) -> bytes:
    """A JPEG 2000 of under a kilobyte, flat, with four channels."""
    return _saved(Image.new("RGBA", (side, side)), "JPEG2000")


def many_scans(scans: int = 10_000, side: int = 4000) -> bytes:
    """A progressive JPEG whose last scan is repeated; every one passes over the whole image."""
    data = _saved(Image.new("RGB", (side, side), "gray"), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * scans + b"\xff\xd9"


def fill_bytes(length: int = 16 * 2**20 - 8) -> bytes:
    """A JPEG of nothing but the bytes that may stand before a marker."""
    return b"\xff\xd8" + b"\xff" * length


def slow_bmp(side: int = 2890) -> bytes:
    """A BMP file whose runs are one pixel long; Pillow unpacks runs in Python."""
    runs, palette = b"\x01\x00" * side * side + b"\x00\x01", bytes(1024)
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(runs), 0, 0, 256, 0)
    start = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(runs), 0, 0, start) + head + palette + runs


def comments(length: int = 2**20) -> bytes:
    """A PPM file whose header is one long comment without an end."""
    return b"P6 1" + b"#" * length


def large_tile(side: int = 30_000) -> bytes:
    """A TIFF file of 16 x 16 pixels in one tile of many million."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(side)) for _ in range(side)) + packer.flush()
    values = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side}
    values |= {324: 8 + 2 + 12 * 10 + 4, 325: len(packed)}  # where the tile is, and how long
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4) + packed


def large_webp(side: int = 5780) -> bytes:
    """A flat WebP file of about a kilobyte and as many pixels as are permitted."""
    return _saved(Image.new("RGBA", (side, side)), "WEBP", lossless=True)


def gif_comments(length: int = 2**23) -> bytes:
    """A GIF file with a comment of many blocks before its image."""
    data = _saved(Image.new("P", (8, 8)), "GIF")
    image = data.index(b",", 13)
    return data[:image] + b"!\xfe" + (b"\xff" + b"c" * 255) * (length // 256) + b"\0" + data[image:]


def png_chunks(count: int = 10**6) -> bytes:
    """A PNG file with a million empty chunks before its pixels."""
    data = _saved(Image.new("L", (8, 8)), "PNG")
    empty = struct.pack(">I4sI", 0, b"teXt", zlib.crc32(b"teXt"))
    return data[:33] + empty * count + data[33:]


def _saved(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
