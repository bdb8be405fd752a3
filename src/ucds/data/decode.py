"""Decode an image file of any usual kind to a square of 8-bit colour, or say why it cannot be used.

Pillow reads most formats, HEIC with pillow-heif; pydicom reads DICOM. The table in ``docs/inputs.md`` lists
what is done with each kind of file.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from ucds.data.bounds import Bounds as Bounds
from ucds.data.bounds import TimedFile, halvings_of, require_memory
from ucds.data.bounds import UnusableImageError as UnusableImageError
from ucds.data.colours import square_of, with_exact_alpha
from ucds.errors import one_line

ByteArray = npt.NDArray[np.uint8]

DECODER_VERSION = 3  # part of every cache key: raise it whenever the decoded pixels change
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
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
_PNG_KEPT = frozenset((b"IHDR", b"PLTE", b"tRNS", b"eXIf", b"IDAT", b"IEND"))
_START_OF_SCAN, _EXIF, _ADOBE = 0xDA, 0xE1, 0xEE  # markers of JPEG
_JPEG_METADATA = frozenset((*range(0xE0, 0xF0), 0xFE)) - {_EXIF, _ADOBE}
_LARGE, _TURN = (
    128 * 2**20,
    Lock(),
)  # images that take so many bytes of memory are decoded one after the other


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
    bounds: Bounds = Bounds(),  # noqa: B008  (it is frozen)
) -> ByteArray:
    """Decode the contents of an image file to a square of 8-bit RGB.

    The first frame is taken, transparency laid on white, deeper pixels scaled to 8 bits, the image
    resized to a square (bilinear with antialiasing, the aspect ratio is not kept) and turned
    upright as its EXIF orientation says. Damaged metadata costs no image.

    Args:
        data: bytes of the file.
        size: side of the square in pixels.
        path: name of the file, for messages only.
        formats: formats that are read, by Pillow's names or "DICOM".
        bounds: most pixels, memory and time; what the header tells is checked before a pixel is decoded.

    Returns:
        ``(3, size, size)`` uint8, contiguous.

    Raises:
        UnusableImageError: the file is not an image, damaged or truncated, or exceeds a bound.
    """
    with _explained(path, bounds):
        try:
            return _decode(data, size, path, formats, bounds)
        except UnusableImageError:
            raise
        except Exception:
            if (plain := _without_metadata(data)) is None:
                raise
        return _decode(plain, size, path, formats, bounds)


def _decode(data: bytes, size: int, path: str | Path, formats: tuple[str, ...], bounds: Bounds) -> ByteArray:
    """Open a file, check what its header tells, and decode it; large ones one after the other."""
    with _opened(data, formats, bounds) as image:
        bounds.require(pixels := image.width * image.height)
        # A large JPEG is decoded at a half, quarter or eighth, never below twice the final size.
        image.draft(None, (2 * size, 2 * size))
        if image.format == "JPEG2000":
            wanted = max(1, min(image.size) // (2 * size)).bit_length() - 1
            image.reduce = min(wanted, halvings_of(data))  # type: ignore[method-assign, assignment]
        needed = require_memory(image, pixels, data, size, bounds)
        with _TURN if needed > _LARGE else nullcontext():
            if image.format == "PNG" and _depth(image) == "RGB;16B" and "transparency" in image.info:
                image = with_exact_alpha(image, data)
            return to_square(image, size, path)


def to_square(image: Image.Image, size: int, path: str | Path) -> ByteArray:
    """Bring an opened image to a square of 8-bit RGB; see :func:`decode_image`."""
    with _explained(path, bounds := Bounds()):
        bounds.require(image.width * image.height)
        if 0 in image.size:
            raise UnusableImageError(path, "no pixels")
        depth, orientation = _depth(image), _orientation(image)
        image.load()
        if image.format == "TIFF":
            orientation = 1  # Pillow has turned it
        pixels = square_of(image, size, depth)
        if orientation in range(2, 9):
            pixels.info = {}  # damaged metadata would be written anew
            pixels.getexif()[_ORIENTATION] = orientation
            pixels = ImageOps.exif_transpose(pixels)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))


def _depth(image: Image.Image) -> str:
    """Return Pillow's name of the pixels in a file that is not decoded yet."""
    tiles = getattr(image, "tile", None)
    return str(tiles[0].args) if tiles else ""


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held; 1, upright, where the metadata are damaged."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata raise almost anything
        return 1


def _without_metadata(data: bytes) -> bytes | None:
    """Return a PNG or JPEG file without texts, profiles and damaged metadata; ``None`` for other files."""
    is_png = data.startswith(_PNG)
    if not is_png and not data.startswith(_JPEG):
        return None
    place = len(_PNG if is_png else _JPEG)
    kept = [data[:place]]
    while place + 8 <= len(data):
        if is_png:
            length, kind = struct.unpack_from(">I4s", data, place)
            length, keep = length + 12, kind in _PNG_KEPT
        else:
            mark, kind, length = struct.unpack_from(">BBH", data, place)
            if mark != 0xFF or kind == _START_OF_SCAN:
                break
            length += 2
            keep = kind not in _JPEG_METADATA and (kind != _ADOBE or length >= 16)
        kept += [data[place : place + length]] * keep
        place += length
    return b"".join([*kept, data[place:]])


def _opened(data: bytes, formats: tuple[str, ...], bounds: Bounds) -> Image.Image:
    """Open an image file in memory; as far as its format allows, no pixel is decoded."""
    if data[_DICOM_MARK] != b"DICM":
        known = [name for name in formats if name in _pillows()]
        return Image.open(TimedFile(data, bounds.seconds), formats=known)
    if "DICOM" not in formats or not find_spec("pydicom"):
        raise UnidentifiedImageError
    from ucds.data.dicom import open_dicom

    return open_dicom(data, bounds)


@cache
def _pillows() -> frozenset[str]:
    """Return the names of all formats that Pillow knows, with those of its plugins."""
    if find_spec("pillow_heif"):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return frozenset(Image.OPEN)


@contextmanager
def _explained(path: str | Path, bounds: Bounds) -> Iterator[None]:
    """Turn whatever a decoder raises into an error that names the file and the reason."""
    try:
        yield
    except UnusableImageError as error:
        raise UnusableImageError(path, error.reason) from None
    except UnidentifiedImageError:
        raise UnusableImageError(path, "not an image of a known format") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        reason = f"too many pixels (over {bounds.pixels / 1e6:.0f} million)"
        raise UnusableImageError(path, reason) from None
    except MemoryError:
        raise UnusableImageError(path, "does not fit into memory") from None
    except Exception as error:  # damaged files raise almost anything: SyntaxError, struct.error ..
        raise UnusableImageError(path, f"damaged or truncated image ({one_line(error, 120)})") from None
