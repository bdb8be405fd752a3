"""Files of images byte by byte, for tests of what is read, refused and left out."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, features


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The file of an image in a format that this installation may lack."""
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, rows: bytes, depth: int = 8, kind: int = 2, extra: bytes = b"") -> bytes:
    """A PNG file of compressed rows, whatever it says of its size, with further parts before them."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def dicom(
    values: np.ndarray | None = None,
    interpretation: str = "MONOCHROME2",
    palette: np.ndarray | None = None,
    syntax: str = "ExplicitVRLittleEndian",
    **elements: Any,
) -> bytes:
    """A DICOM file with these elements.

    Values are ``(h, w)``, ``(h, w, 3)``, or places ``(h, w)`` in a palette ``(k, 3)``; without values, the
    element `PixelData` need not have as many pixels as others say.
    """
    pydicom = pytest.importorskip("pydicom")
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = getattr(pydicom.uid, syntax)
    file = pydicom.dataset.FileDataset("x.dcm", {}, file_meta=meta, preamble=bytes(128))
    file.SOPClassUID, file.SOPInstanceUID = pydicom.uid.SecondaryCaptureImageStorage, "1.2.3"
    if values is not None:
        file.set_pixel_data(values, "RGB" if values.ndim == 3 else interpretation, 8 * values.itemsize)
    if palette is not None:
        for name, colours in zip(("Red", "Green", "Blue"), palette.T.astype("<u2"), strict=True):
            file.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [len(palette), 0, 16])
            file.add_new(f"{name}PaletteColorLookupTableData", "OW", colours.tobytes())
    for name, value in elements.items():
        setattr(file, name, value)
    if "PixelData" in elements:
        compressed = meta.TransferSyntaxUID.is_encapsulated
        file.PixelData = pydicom.encaps.encapsulate([file.PixelData]) if compressed else file.PixelData
        file["PixelData"].VR = "OB" if compressed else "OW"
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
