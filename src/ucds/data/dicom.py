"""Decodes the first frame of a DICOM file: grey values through the file's own window, or colours."""

from __future__ import annotations

import io
import zlib
from contextlib import suppress
from typing import IO, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ucds.data.bounds import Bounds, require_memory

_DEFLATED, _RUN_LENGTHS = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.5"
_MAKERS, _DATES = ("Manufacturer", "ManufacturerModelName", "StationName"), ("AcquisitionDate", "StudyDate")
_LONGEST_RUN = 64  # bytes that one byte of run lengths may stand for


def open_dicom(data: bytes, bounds: Bounds) -> Image.Image:
    """Decode the first frame to 8 bits, after all sizes in the file were found to be within bounds."""
    import pydicom
    from pydicom.encaps import get_frame
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array

    syntax = _transfer_syntax(data, bounds)
    whole = syntax == _DEFLATED or syntax.is_encapsulated
    file = pydicom.dcmread(io.BytesIO(data), stop_before_pixels=not whole)
    count = file.Rows * file.Columns
    values = count * file.SamplesPerPixel * file.BitsAllocated  # each takes eight times its own bytes
    bounds.require(count, len(data) * (1 + whole) + values)
    if syntax.is_encapsulated:  # the frame names sizes of its own
        frame = get_frame(file.PixelData, 0, number_of_frames=int(file.get("NumberOfFrames") or 1))
        bounds.require(count, len(frame) * (_LONGEST_RUN if syntax == _RUN_LENGTHS else 1))
        with (
            suppress(UnidentifiedImageError),
            Image.open(io.BytesIO(frame), formats=["JPEG", "JPEG2000"]) as image,
        ):
            require_memory(image, image.width * image.height, frame, 0, bounds)
    pixels: Any = pixel_array(file if whole else io.BytesIO(data), index=0)
    if file.PhotometricInterpretation == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, file)
        return _deep_colours(pixels, 8 * pixels.itemsize)
    if pixels.ndim == 3:
        return _deep_colours(pixels, int(file.BitsStored))
    return Image.fromarray(_shades(pixels, file))


def read_tags(file: IO[bytes]) -> dict[str, str]:
    """Read width, height, device and date of a DICOM file, without its pixels; nothing if it is deflated."""
    import pydicom

    if _DEFLATED.encode() in file.read(1024):  # which would have to be unpacked
        return {}
    file.seek(0)
    found = pydicom.dcmread(
        file, stop_before_pixels=True, specific_tags=["Rows", "Columns", *_MAKERS, *_DATES]
    )
    device = " ".join(str(found[name].value) for name in _MAKERS if found.get(name))
    date = next((str(found[name].value) for name in _DATES if found.get(name)), "")
    return {"width": str(found.Columns), "height": str(found.Rows), "device": device, "date": date}


def _transfer_syntax(data: bytes, bounds: Bounds) -> Any:
    """Return the file's transfer syntax, unless its deflated part would become too long."""
    from pydicom.filereader import read_dataset

    file = io.BytesIO(data)
    file.seek(132)
    meta = read_dataset(file, False, True, stop_when=lambda tag, *_: tag >> 16 != 2)
    if meta.TransferSyntaxUID == _DEFLATED:
        most = bounds.memory // 4  # it is held several times
        packed = memoryview(data)[file.tell() :]
        if len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most + 1)) > most:
            bounds.require(0, bounds.memory + 1)
    return meta.TransferSyntaxUID


def _deep_colours(pixels: Any, bits: int) -> Image.Image:
    """Bring colours of ``bits`` bits to 8."""
    return Image.fromarray((pixels >> max(0, bits - 8)).astype(np.uint8), "RGB")


def _shades(pixels: Any, file: Any) -> Any:
    """Show grey values in 8 bits; padding is black."""
    values, places = pixels.ravel(), np.s_[:]
    counted = np.isfinite(values)
    if pixels.dtype.kind in "iu" and pixels.itemsize <= 2:  # what is done, is done once for each value
        low = int(pixels.min())
        places = np.subtract(values, low, dtype=np.int32)
        counted = np.bincount(places) > 0
        values = np.arange(low, low + len(counted))
    padding = np.zeros(len(values), bool)
    if (first := file.get("PixelPaddingValue")) is not None:
        # Some files write signed values as unsigned ones.
        ends = np.sort(np.array([first, file.get("PixelPaddingRangeLimit", first)]).astype(pixels.dtype))
        padding = (values >= ends[0]) & (values <= ends[1])
    shown = _windowed(values, counted & ~padding, file)
    if file.PhotometricInterpretation == "MONOCHROME1" or file.get("PresentationLUTShape") == "INVERSE":
        shown = 1 - shown
    shades = (np.where(padding, 0, shown) * 255 + 0.5).astype(np.uint8)
    return shades[places].reshape(pixels.shape)


def _windowed(values: Any, counted: Any, file: Any) -> Any:
    """Scale values to 0 .. 1 by the file's table, by its first window, or by the range of valid values."""
    from pydicom.pixels.processing import apply_modality_lut, apply_voi

    values = apply_modality_lut(values, file)
    if file.get("VOILUTSequence"):
        bits = file.VOILUTSequence[0].LUTDescriptor[2]
        return apply_voi(np.rint(values).astype(np.int64), file) / (2**bits - 1)
    centre, width = (_first_number(file, name) for name in ("WindowCenter", "WindowWidth"))
    if not width > 0:
        if not counted.any():
            return np.zeros(len(values))
        low, high = float(values[counted].min()), float(values[counted].max())
        return ((values - low) / max(high - low, 1e-9)).clip(0, 1)
    function = file.get("VOILUTFunction") or "LINEAR"
    if function == "SIGMOID":
        return 1 / (1 + np.exp((-4 * (values - centre) / width).clip(-500, 500)))
    if function == "LINEAR":
        centre, width = centre - 0.5, max(width - 1, 1e-9)
    return ((values - centre) / width + 0.5).clip(0, 1)


def _first_number(file: Any, name: str) -> float:
    """Return the first number of an element; NaN if there is none that can be read."""
    try:
        return float(np.atleast_1d(file.get(name))[0])
    except (TypeError, ValueError, IndexError):
        return float("nan")
