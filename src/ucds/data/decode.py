"""Decode an image file of any usual kind to a square of 8-bit colour, or say why it cannot be used.

Pillow reads most formats, HEIC with pillow-heif; pydicom reads DICOM. The table in ``docs/inputs.md`` lists
what is done with each kind of file.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from ucds.errors import UserError, one_line

ByteArray = npt.NDArray[np.uint8]

DECODER_VERSION = 2  # part of every cache key: raise it whenever the decoded pixels change
MAX_PIXELS = 2**30 // 12  # Pillow's own bound for suspicious files: 89 million pixels
COMMON_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP")
FORMATS = (*COMMON_FORMATS, "PPM", "JPEG2000", "AVIF", "HEIF", "DICOM")

_HEIF_SUFFIXES, _DICOM_SUFFIXES = (".heic", ".heif", ".hif"), (".dcm", ".dicom")
IMAGE_SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".ppm", ".pgm", ".pbm", ".pnm"),
        *(".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".avif", ".jp2"),
        *(_HEIF_SUFFIXES if find_spec("pillow_heif") else ()),
        *(_DICOM_SUFFIXES if find_spec("pydicom") else ()),
    )
)
"""Suffixes of the files that can be read here, in lower case."""

_REMEDIES = {
    "convert them to PNG or TIFF": (
        *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),  # cameras
        *(".eps", ".exr", ".hdr", ".ico", ".jxl", ".psd", ".svg", ".tga", ".xcf"),
        *(".mrxs", ".ndpi", ".nii", ".nrrd", ".scn", ".svs"),  # medicine
    ),
    "unpack them": (".7z", ".gz", ".rar", ".tar", ".tgz", ".zip"),
    "pip install 'ucds[heif]'": _HEIF_SUFFIXES,
    "pip install 'ucds[dicom]'": _DICOM_SUFFIXES,
}
_DICOM_MARK = slice(128, 132)
_ORIENTATION = 0x0112
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")


class UnusableImageError(UserError):
    """A file that cannot be used as an image; the message names the file and the reason."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def describe_unreadable(suffixes: Counter[str]) -> str | None:
    """Say how many files hold images that cannot be read here, and what to do; ``None`` if there are none."""
    remedies = {suffix: remedy for remedy, names in _REMEDIES.items() for suffix in names}
    unread = {suffix: count for suffix, count in sorted(suffixes.items()) if suffix in remedies}
    if not unread:
        return None
    parts = ", ".join(f"{count:,} {suffix} ({remedies[suffix]})" for suffix, count in unread.items())
    return f"{sum(unread.values()):,} files of types that are not read here are left out: {parts}"


def decode_image(
    data: bytes,
    size: int,
    path: str | Path = "image",
    *,
    formats: tuple[str, ...] = FORMATS,
    max_pixels: int = MAX_PIXELS,
) -> ByteArray:
    """Decode the contents of an image file to a square of 8-bit RGB.

    The first frame is taken, transparency laid on white, deeper pixels scaled to 8 bits, the image
    resized to a square (bilinear with antialiasing, the aspect ratio is not kept) and turned
    upright as its EXIF orientation says.

    Args:
        data: bytes of the file.
        size: side of the square in pixels.
        path: name of the file, for messages only.
        formats: formats that are read, by Pillow's names or "DICOM".
        max_pixels: most pixels, checked in the header before a pixel is decoded; at most 89 million.

    Returns:
        ``(3, size, size)`` uint8, contiguous.

    Raises:
        UnusableImageError: the file is not an image, damaged or truncated, or has too many pixels.
    """
    with open_image(data, path, formats, max_pixels) as image:
        # A large JPEG is decoded at a half, quarter or eighth, never below twice the final size.
        image.draft(None, (2 * size, 2 * size))
        return to_square(image, size, path)


@contextmanager
def open_image(
    data: bytes, path: str | Path, formats: tuple[str, ...] = FORMATS, max_pixels: int = MAX_PIXELS
) -> Iterator[Image.Image]:
    """Open an image file in memory; errors inside the block, too, are those of :func:`decode_image`."""
    with _explained(path, max_pixels), _opened(data, formats, max_pixels) as image:
        _check_pixels(image.width * image.height, max_pixels)
        yield image


def orientation_of(image: Image.Image) -> int:
    """Return how a loaded image has to be turned: 2 to 8 of EXIF, or 1 where it is upright."""
    found = image.getexif().get(_ORIENTATION, 1)
    return int(found) if found in range(2, 9) else 1


def orientation_as_exif(image: Image.Image) -> bytes:
    """Write the orientation of a loaded image, and nothing else, as EXIF data; none where it is upright."""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation = orientation_of(image)
    return exif.tobytes() if orientation > 1 else b""


def encode_as_png(image: Image.Image) -> bytes:
    """Encode the 8-bit RGB of an opened image, which is neither scaled nor turned, and nothing else of it."""
    image.load()
    file = io.BytesIO()
    Image.fromarray(np.asarray(_as_rgb(image))).save(file, "PNG", exif=orientation_as_exif(image))
    return file.getvalue()


def to_square(image: Image.Image, size: int, path: str | Path) -> ByteArray:
    """Bring an opened image to a square of 8-bit RGB; see :func:`decode_image`."""
    with _explained(path):
        _check_pixels(image.width * image.height, MAX_PIXELS)
        if 0 in image.size:
            raise UnusableImageError(path, "no pixels")
        image.load()
        orientation = orientation_of(image)
        pixels = _as_rgb(image)
        if pixels.size != (size, size):
            pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
        if orientation > 1:
            pixels.getexif()[_ORIENTATION] = orientation
            pixels = ImageOps.exif_transpose(pixels)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))


def _opened(data: bytes, formats: tuple[str, ...], max_pixels: int) -> Image.Image:
    """Open an image file in memory; as far as its format allows, no pixel is decoded."""
    if data[_DICOM_MARK] != b"DICM":
        return Image.open(io.BytesIO(data), formats=[name for name in formats if name in _pillows()])
    if "DICOM" not in formats or not find_spec("pydicom"):
        raise UnidentifiedImageError
    return _open_dicom(data, max_pixels)


@cache
def _pillows() -> frozenset[str]:
    """Return the names of all formats that Pillow knows, with those of its plugins."""
    if find_spec("pillow_heif"):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return frozenset(Image.OPEN)


def _open_dicom(data: bytes, max_pixels: int) -> Image.Image:
    """Decode the first frame: grey values as they are (inverted where white is low), colours as 8-bit RGB."""
    import pydicom
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array

    file = pydicom.dcmread(io.BytesIO(data))
    _check_pixels(file.Rows * file.Columns, max_pixels)
    pixels: Any = pixel_array(file, index=0)
    if file.PhotometricInterpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, file)
        return _deep_colours(pixels, 8 * pixels.itemsize)
    if pixels.ndim == 3:
        return _deep_colours(pixels, int(file.BitsStored))
    values = pixels.astype(np.float32)
    return Image.fromarray(-values if file.PhotometricInterpretation == "MONOCHROME1" else values)


def _deep_colours(pixels: Any, bits: int) -> Image.Image:
    """Bring colours of so many bits to 8."""
    return Image.fromarray((pixels >> max(0, bits - 8)).astype(np.uint8), "RGB")


def _check_pixels(count: int, most: int) -> None:
    if count > most:
        raise Image.DecompressionBombError


@contextmanager
def _explained(path: str | Path, max_pixels: int = MAX_PIXELS) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that names the file and the reason."""
    try:
        yield
    except UnusableImageError:
        raise
    except UnidentifiedImageError:
        raise UnusableImageError(path, "not an image of a known format") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnusableImageError(path, f"too many pixels (over {max_pixels / 1e6:.0f} million)") from None
    except MemoryError:
        raise UnusableImageError(path, "does not fit into memory") from None
    except Exception as error:  # damaged files raise almost anything: SyntaxError, struct.error ..
        raise UnusableImageError(path, f"damaged or truncated image ({one_line(error, 120)})") from None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode in _DEEP_MODES:
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        return _on_white(image)
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """Lay an image on white, some rows at a time: a large one would need its memory four times."""
    result = Image.new("RGB", image.size)
    for top in range(0, image.height, 512):
        box = (0, top, image.width, min(top + 512, image.height))
        colours = image.crop(box).convert("RGBA")
        result.paste(Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours), box)
    return result


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale grey pixels to 8 bits: those of 16 bits by their full range, others by the image's own range."""
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
