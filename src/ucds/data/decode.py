"""Decode an image file of any usual kind to a square of 8-bit colour, or say why it cannot be used.

The table in `docs/data.md` lists what is done with each kind of file.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from ucds.errors import UserError

ByteArray = npt.NDArray[np.uint8]

DECODER_VERSION = 1  # part of every cache key: raise it whenever the decoded pixels change
MAX_FILE_BYTES = 256 * 2**20
MAX_PIXELS = 2**30 // 12  # Pillow's own bound for suspicious files: 89 million pixels
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")
_ORIENTATION = 0x0112
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")


class UnusableImageError(UserError):
    """A file that cannot be used as an image; the message names the file and the reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnusableImageError], tuple[str, str]]:
        """Survive a trip between processes."""
        return type(self), (self.path, self.reason)


def decode_file(path: str | Path, size: int) -> ByteArray:
    """Read and decode one file; see `read_image_bytes` and `decode_image`."""
    return decode_image(read_image_bytes(path), size, path)


def read_image_bytes(path: str | Path) -> bytes:
    """The contents of a regular file of an acceptable length.

    Raises:
        UnusableImageError: missing, unreadable, empty, larger than 256 MiB, or not a regular file.
    """
    try:
        # Non-blocking: opening a named pipe would otherwise wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            _check_status(os.fstat(descriptor), path)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnusableImageError(path, f"cannot be read ({error.strerror})") from None


def _check_status(status: os.stat_result, path: str | Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableImageError(path, "not a regular file")
    if status.st_size == 0:
        raise UnusableImageError(path, "empty file")
    if status.st_size > MAX_FILE_BYTES:
        raise UnusableImageError(path, f"too large a file (over {MAX_FILE_BYTES // 2**20} MiB)")


def decode_image(data: bytes, size: int, path: str | Path = "image") -> ByteArray:
    """Decode the contents of an image file to a square of 8-bit RGB.

    The first frame is taken, transparency laid on white, deeper pixels scaled to 8 bits, the image
    resized to a square (bilinear with antialiasing, the aspect ratio is not kept) and turned
    upright as its EXIF orientation says.

    Args:
        data: the file's bytes.
        size: side of the square in pixels.
        path: the file's name, for messages only.

    Returns:
        `(3, size, size)` uint8, contiguous.

    Raises:
        UnusableImageError: not an image, damaged, truncated, or of more than 89 million pixels.
    """
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            return to_square(image, size, path)
    except UnusableImageError:
        raise
    except UnidentifiedImageError:
        raise UnusableImageError(path, "not an image of a known format") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnusableImageError(path, _too_many_pixels()) from None
    except MemoryError:
        raise UnusableImageError(path, "does not fit into memory") from None
    except Exception as error:  # damaged files raise almost anything: SyntaxError, struct.error ..
        raise UnusableImageError(path, f"damaged or truncated image ({_one_line(error)})") from None


def to_square(image: Image.Image, size: int, path: str | Path) -> ByteArray:
    """Bring an opened image to a square of 8-bit RGB; see :func:`decode_image`."""
    if image.width * image.height > MAX_PIXELS:
        raise UnusableImageError(path, _too_many_pixels())
    # A large JPEG is decoded at a half, quarter or eighth, never below twice the final size.
    image.draft(None, (2 * size, 2 * size))
    image.load()
    orientation = image.getexif().get(_ORIENTATION, 1)
    pixels = _as_rgb(image)
    if pixels.size != (size, size):
        pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
    if orientation in range(2, 9):
        pixels = _turn_upright(pixels, orientation)
    return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode in _DEEP_MODES:
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey pixels of 16 bits scaled by their full range; of 32 bits, by the image's own range."""
    values = np.asarray(image).astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("pixels that are NaN or infinite")
    if image.mode == "F" or low < 0 or high > 65535:
        values -= low
        scale = 255 / (high - low) if high > low else 0.0
    else:
        scale = 255 / 65535
    return Image.fromarray((values * scale + 0.5).astype(np.uint8))


def _turn_upright(image: Image.Image, orientation: int) -> Image.Image:
    image.getexif()[_ORIENTATION] = orientation
    upright: Image.Image = ImageOps.exif_transpose(image)
    return upright


def _too_many_pixels() -> str:
    return f"too many pixels (over {MAX_PIXELS / 1e6:.0f} million)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
