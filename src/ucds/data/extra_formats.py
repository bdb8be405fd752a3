"""Image formats beyond those that Pillow always reads: AVIF, HEIC by pillow-heif, DICOM by pydicom."""

from __future__ import annotations

import io
from collections import Counter
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

EXTRA_FORMATS = ("AVIF", "HEIF", "DICOM")

_HEIF_SUFFIXES = (".heic", ".heif", ".hif")
_DICOM_SUFFIXES = (".dcm", ".dicom")
_OTHER_SUFFIXES = (
    *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),  # cameras
    *(".eps", ".exr", ".hdr", ".ico", ".jxl", ".psd", ".svg", ".tga", ".xcf"),
    *(".mrxs", ".ndpi", ".nii", ".nrrd", ".scn", ".svs"),  # medicine
)
_DICOM_MARK = slice(128, 132)


def readable_suffixes() -> frozenset[str]:
    """Return the suffixes of the extra formats that can be read here."""
    heif = _HEIF_SUFFIXES if find_spec("pillow_heif") else ()
    dicom = _DICOM_SUFFIXES if find_spec("pydicom") else ()
    return frozenset((".avif", *heif, *dicom))


def describe_unreadable(suffixes: Counter[str]) -> str | None:
    """Say how many files of types that are images cannot be read here, and what to do."""
    extras = dict.fromkeys(_HEIF_SUFFIXES, "pip install 'ucds[heif]'")
    extras |= dict.fromkeys(_DICOM_SUFFIXES, "pip install 'ucds[dicom]'")
    remedies = dict.fromkeys(_OTHER_SUFFIXES, "convert them to PNG or TIFF") | extras
    unread = {suffix: count for suffix, count in sorted(suffixes.items()) if suffix in remedies}
    if not unread:
        return None
    parts = ", ".join(f"{count:,} {suffix} ({remedies[suffix]})" for suffix, count in unread.items())
    return f"{sum(unread.values()):,} files of types that are not read here are left out: {parts}"


def open_image(data: bytes, formats: tuple[str, ...], max_pixels: int) -> Image.Image:
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
    if file.Rows * file.Columns > max_pixels:
        raise Image.DecompressionBombError
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
