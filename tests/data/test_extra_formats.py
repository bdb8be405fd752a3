"""Tests of AVIF, HEIC and DICOM, written here and read back."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from ucds.data.decode import COMMON_FORMATS, UnusableImageError, decode_image
from ucds.data.folders import scan_folder


def colours() -> Image.Image:
    """A picture whose left half is red and whose right half is blue."""
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:, :16, 0], pixels[:, 16:, 2] = 220, 220
    return Image.fromarray(pixels)


def written(kind: str) -> bytes:
    file = io.BytesIO()
    colours().save(file, kind, quality=95)
    return file.getvalue()


def dicom(values: np.ndarray, interpretation: str = "MONOCHROME2") -> bytes:
    """An uncompressed DICOM file of these values, (h, w) or (h, w, 3)."""
    pydicom = pytest.importorskip("pydicom")
    colour = values.ndim == 3
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", "1.2.3"
    file = pydicom.dataset.FileDataset("x.dcm", {}, file_meta=meta, preamble=bytes(128))
    file.Rows, file.Columns = values.shape[:2]
    file.SamplesPerPixel = 3 if colour else 1
    file.PhotometricInterpretation = "RGB" if colour else interpretation
    file.BitsAllocated = file.BitsStored = 8 * values.itemsize
    file.HighBit, file.PixelRepresentation = file.BitsStored - 1, int(values.dtype.kind == "i")
    if colour:
        file.PlanarConfiguration = 0
    file.PixelData = values.tobytes()
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def with_palette(values: np.ndarray, palette: np.ndarray) -> bytes:
    """A DICOM file of these values, (h, w) of 8 bits, each of which names a colour (k, 3) of 16 bits."""
    import pydicom

    file = pydicom.dcmread(io.BytesIO(dicom(values, "PALETTE COLOR")))
    for place, name in enumerate(("Red", "Green", "Blue")):
        file.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [len(palette), 0, 16])
        file.add_new(f"{name}PaletteColorLookupTableData", "OW", palette[:, place].astype("<u2").tobytes())
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def halves(data: bytes) -> tuple[list[int], list[int]]:
    """Mean colour of the left and of the right of a decoded file."""
    pixels = decode_image(data, 32).astype(int)
    left, right = pixels[:, :, 2:12].mean((1, 2)), pixels[:, :, 20:30].mean((1, 2))
    return left.round().astype(int).tolist(), right.round().astype(int).tolist()


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_avif_and_heic_are_read(kind: str) -> None:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    left, right = halves(written(kind))
    assert np.abs(np.array([*left, *right]) - [220, 0, 0, 0, 0, 220]).max() < 12


def test_grey_dicom_is_stretched_and_inverted_where_white_is_low() -> None:
    values = np.repeat(np.array([[-1000, 500]], np.int16), 16, axis=1).repeat(32, axis=0)
    assert halves(dicom(values)) == ([0, 0, 0], [255, 255, 255])
    assert halves(dicom(values, "MONOCHROME1")) == ([255, 255, 255], [0, 0, 0])


def test_coloured_dicom_is_read() -> None:
    assert halves(dicom(np.asarray(colours()))) == ([220, 0, 0], [0, 0, 220])


def test_colours_of_16_bits_and_of_a_palette_are_brought_to_8() -> None:
    deep = np.asarray(colours()).astype(np.uint16) * 257
    assert halves(dicom(deep)) == ([220, 0, 0], [0, 0, 220])
    values = np.repeat(np.array([[0, 1]], np.uint8), 16, axis=1).repeat(32, axis=0)
    palette = np.array([[220, 0, 0], [0, 0, 220]]) * 257
    assert halves(with_palette(values, palette)) == ([220, 0, 0], [0, 0, 220])


def test_damaged_files_and_formats_that_are_not_asked_for_are_refused() -> None:
    whole = dicom(np.zeros((32, 32), np.int16))
    for data in (whole[:140], whole[:-9], whole[:128] + b"DICM" + b"\xff" * 99):
        with pytest.raises(UnusableImageError):
            decode_image(data, 32)
    with pytest.raises(UnusableImageError, match="not an image of a known format"):
        decode_image(whole, 32, formats=COMMON_FORMATS)
    with pytest.raises(UnusableImageError, match="too many pixels"):
        decode_image(whole, 32, max_pixels=1000)


def test_their_files_are_found_where_they_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif")
    pytest.importorskip("pydicom")
    for name in ("a.heic", "b.DCM", "c.avif"):
        (tmp_path / name).touch()
    assert scan_folder(tmp_path).ids == ("a.heic", "b.DCM", "c.avif")
