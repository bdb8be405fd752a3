"""Decode an image file of any usual kind to a square of 8-bit colour, or say why it cannot be used.

Pillow reads most formats, HEIC with pillow-heif; pydicom reads DICOM. The table in ``docs/inputs.md`` lists
the steps for each kind of file.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from ucds.data.bounds import Bounds as Bounds
from ucds.data.bounds import TimedFile, require_memory
from ucds.data.bounds import UnusableImageError as UnusableImageError
from ucds.data.colours import rgb_of, square_of, with_exact_alpha
from ucds.data.metadata import bare_file
from ucds.errors import one_line
from ucds.received import open_received

ByteArray = npt.NDArray[np.uint8]

DECODER_VERSION = 3  # part of every cache key: raise it whenever the decoded pixels change
# Part of the fingerprint of images, by which records know their data: raise it when 8-bit JPEG or PNG change.
PIXELS_VERSION = 2
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
"""Suffixes of files that this installation can read, in lower case."""

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
_EXIF_PART, _TAKEN, _WRITTEN, _MAKERS = 0x8769, 0x9003, 0x0132, (0x010F, 0x0110)  # tags of EXIF
_COMPARED = 64  # side in pixels at which images with and without metadata are compared
_LARGE, _TURN = 128 * 2**20, Lock()  # images that take more bytes in memory are decoded one after the other


def describe_unreadable(suffixes: Counter[str]) -> str | None:
    """Say how many image files this installation cannot read, and what to do; ``None`` if there are none."""
    remedies = {suffix: remedy for remedy, names in _REMEDIES.items() for suffix in names}
    unread = {suffix: count for suffix, count in sorted(suffixes.items()) if suffix in remedies}
    if not unread:
        return None
    parts = ", ".join(f"{count:,} {suffix} ({remedies[suffix]})" for suffix, count in unread.items())
    return f"files of types that ucds cannot read are left out: {parts}"


def decode_image(
    data: bytes,
    size: int,
    path: str | Path = "image",
    *,
    formats: tuple[str, ...] = FORMATS,
    bounds: Bounds = Bounds(),  # noqa: B008  (it is frozen)
) -> ByteArray:
    """Decode the contents of an image file to a square of 8-bit RGB.

    The first frame counts. Transparency is laid on white, and deeper pixels are scaled to 8 bits. The image
    is resized to a square (bilinear with antialiasing, without keeping the aspect ratio) and turned upright
    as its EXIF orientation says. Damaged metadata is ignored.

    The result is ``(3, size, size)`` uint8, contiguous. The ``path`` is for messages only. Only the
    ``formats`` are read, by Pillow's names or "DICOM". What the header tells is compared with the ``bounds``
    before a pixel is decoded.

    Raises:
        UnusableImageError: the file is not an image, damaged or truncated, or exceeds a bound.
    """
    with _explained(path, bounds):
        try:
            return _decode(data, size, path, formats, bounds)
        except UnusableImageError:
            raise
        except Exception:  # whatever broke it, it may be the metadata
            if (plain := bare_file(data)) is None:
                raise
        return _decode(plain, size, path, formats, bounds)


def _decode(data: bytes, size: int, path: str | Path, formats: tuple[str, ...], bounds: Bounds) -> ByteArray:
    with _opened(data, formats, bounds) as image:
        bounds.require(image.width * image.height)
        with _ready(image, data, size, bounds) as ready:
            return to_square(ready, size, path)


@contextmanager
def _ready(image: Image.Image, data: bytes, size: int, bounds: Bounds) -> Iterator[Image.Image]:
    """Check how much memory it takes to decode an image for a square; if it takes much, wait for a turn."""
    pixels = image.width * image.height
    # A large JPEG is decoded at a half, quarter or eighth, never below twice the final size.
    image.draft(None, (2 * size, 2 * size))
    needed = require_memory(image, pixels, data, size, bounds)
    with _TURN if needed > _LARGE else nullcontext():
        exact = image.format == "PNG" and _depth(image) == "RGB;16B" and "transparency" in image.info
        yield with_exact_alpha(image, data) if exact else image


def without_metadata(data: bytes, path: str | Path = "image") -> bytes:
    """Return an image file with the pixels and the orientation only, which decodes to the same squares.

    EXIF, comments, profiles, texts, previews, further frames, and whatever follows the image are left out. A
    file that is neither JPEG nor PNG becomes a PNG file. The ``path`` names the file in messages.
    """
    expected, exif = decode_image(data, _COMPARED, path), Image.Exif()
    with suppress(Exception), _opened(data, FORMATS, Bounds()) as image:
        if (turned := _orientation(image)) > 1 and image.format != "TIFF":
            exif[_ORIENTATION] = turned
    kept = exif.tobytes() if exif else b""
    bare = bare_file(data, kept)
    with suppress(UnusableImageError):
        if bare is not None and np.array_equal(decode_image(bare, _COMPARED), expected):
            return bare
    file, bounds = io.BytesIO(), Bounds()
    with (
        _explained(path, bounds),
        _opened(data, FORMATS, bounds) as image,
        _ready(image, data, max(image.size), bounds) as ready,
    ):
        depth = _depth(ready)
        ready.load()
        Image.fromarray(np.asarray(rgb_of(ready, depth))).save(file, "PNG", exif=kept)
    return file.getvalue()


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
        if orientation > 1:
            pixels.info = {}  # damaged metadata would be written anew
            pixels.getexif()[_ORIENTATION] = orientation
            pixels = ImageOps.exif_transpose(pixels)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))


def _depth(image: Image.Image) -> str:
    """Return Pillow's name of the pixels in a file that is not decoded yet."""
    tiles = getattr(image, "tile", None)
    return str(tiles[0].args) if tiles else ""


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an image, 1 to 8; 1 (upright) if the metadata are damaged."""
    try:
        found = int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata raise almost anything
        return 1
    return found if found in range(2, 9) else 1


def _opened(data: bytes, formats: tuple[str, ...], bounds: Bounds) -> Image.Image:
    """Open an image file in memory; as far as its format allows, no pixel is decoded."""
    if data[_DICOM_MARK] != b"DICM":
        known = [name for name in formats if name in _pillows()]
        return Image.open(TimedFile(data, bounds.seconds), formats=known)
    if "DICOM" not in formats or not find_spec("pydicom"):
        raise UnidentifiedImageError
    from ucds.data.dicom import open_dicom

    return open_dicom(data, bounds)


def read_header(path: Path) -> dict[str, str]:
    """Read the width, height, device and date in the header of an image file; nothing if it is damaged."""
    with suppress(Exception), open_received(path, follow=True) as file:  # damaged ones raise almost anything
        start = file.read(_DICOM_MARK.stop)
        file.seek(0)
        if start[_DICOM_MARK] == b"DICM":
            from ucds.data.dicom import read_tags

            return read_tags(file)
        with Image.open(file, formats=[name for name in FORMATS if name in _pillows()]) as image:
            found = {"width": str(image.width), "height": str(image.height)}
            with suppress(Exception):
                exif = Image.Exif()
                if image.format == "TIFF":
                    exif = image.getexif()
                elif written := image.info.get("exif"):
                    exif.load(written)  # `getexif` would decode the pixels of a PNG file
                found["device"] = " ".join(str(exif[tag]) for tag in _MAKERS if tag in exif)
                found["date"] = str(exif.get_ifd(_EXIF_PART).get(_TAKEN) or exif.get(_WRITTEN, ""))
            return {name: " ".join(text.replace("\0", " ").split())[:80] for name, text in found.items()}
    return {}


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
    """Turn any error of a decoder into one that names the file and the reason."""
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
