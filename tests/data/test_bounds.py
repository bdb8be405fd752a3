"""Sizes that an image file names: each file is read or refused in one line, in bounded memory and time."""

import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import label_service as kit
import pytest
from memory_kit import check
from picture_kit import dicom, png, saved
from PIL import Image

from ucds.data.decode import Bounds, UnusableImageError, decode_image

TURNED = Image.Exif()
TURNED[0x0112] = 6
MOST_SECONDS, SIDE = 12, 9400  # the side of nearly as many pixels as are read
MUCH = "too much memory"


def black(width: int, height: int, depth: int, kind: int, channels: int) -> bytes:
    """A black PNG."""
    packer, row = zlib.compressobj(9), 1 + width * channels * depth // 8
    rows = b"".join(packer.compress(bytes(row * 100)) for _ in range(height // 100))
    return png(
        width, height, rows + packer.compress(bytes(row * (height % 100))) + packer.flush(), depth, kind
    )


def sized(syntax: str, rows: int, columns: int, pixels: bytes = bytes(8192), samples: int = 1) -> bytes:
    """A DICOM file whose pixels need not be as many as it names."""
    size = {"Rows": rows, "Columns": columns, "SamplesPerPixel": samples, "NumberOfFrames": 9999}
    bits = {"BitsAllocated": 16, "BitsStored": 16, "HighBit": 15, "PixelRepresentation": 0}
    how = {"PhotometricInterpretation": "MONOCHROME2" if samples == 1 else "RGB", "PlanarConfiguration": 0}
    return dicom(syntax=syntax, **size, **bits, **how, PixelData=pixels)


def run_lengths() -> bytes:
    """A frame that becomes 64 times as long."""
    segment = b"\x81\x00" * 2**22
    return struct.pack("<16L", 1, 64, *[0] * 14) + segment


def flat(mode: str, kind: str, side: int = SIDE, **options: Any) -> bytes:
    return saved(Image.new(mode, (side, side)), kind, **options)


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "PNG, 16 bits with alpha": (partial(black, SIDE, SIDE, 16, 6, 4), ""),
    "PNG, one pixel high": (partial(black, 80_000_000, 1, 8, 6, 4), MUCH),
    "JPEG of 90 scans": (partial(kit.many_scans, 80, 4000), ""),
    "JPEG of 210 scans": (partial(kit.many_scans, 200, 4000), "too many scans"),
    "JPEG of fill bytes": (partial(kit.fill_bytes, 2**22), "not decoded within 0.3 seconds"),
    "JPEG, progressive": (partial(flat, "CMYK", "JPEG", progressive=True, subsampling=0), MUCH),
    "BMP of short runs": (partial(kit.slow_bmp, 1200), "not decoded within 0.3 seconds"),
    "PPM comment": (partial(kit.comments, 2**25), "not decoded within 0.3 seconds"),
    "TIFF tile": (kit.large_tile, MUCH),
    "TIFF of 32-bit integers": (partial(flat, "I", "TIFF", compression="tiff_lzw"), ""),
    "TIFF strip": (partial(flat, "RGBA", "TIFF", compression="tiff_lzw", tiffinfo={278: SIDE}), MUCH),
    "WebP": (kit.large_webp, MUCH),
    "JPEG 2000": (kit.slow_jpeg2000, MUCH),
    "JPEG 2000 of many bytes": (lambda: flat("RGB", "JPEG2000", 64) + bytes(2**26), "too long a JPEG 2000"),
    "JPEG 2000 of many tiles": (partial(flat, "L", "JPEG2000", 1650, tile_size=(16, 16)), MUCH),
    "AVIF": (partial(flat, "RGB", "AVIF", 6000, speed=10), MUCH),
    "DICOM, deflated": (lambda: sized("DeflatedExplicitVRLittleEndian", 64, 64, bytes(30 * 2**20)), MUCH),
    "DICOM of many rows": (partial(sized, "ExplicitVRLittleEndian", 65535, 65535), "too many pixels"),
    "DICOM of many samples": (partial(sized, "ExplicitVRLittleEndian", 9000, 9000, samples=60000), MUCH),
    "DICOM of run lengths": (lambda: sized("RLELossless", 64, 64, run_lengths()), MUCH),
    "JPEG 2000 in DICOM": (lambda: sized("JPEG2000", 64, 64, flat("L", "JPEG2000", 9000)), MUCH),
}


LARGE = {
    "PNG, 16 bits with alpha",
    "PNG, one pixel high",
    "JPEG of 90 scans",
    "JPEG, progressive",
    "AVIF",
    "WebP",
}
LARGE |= {
    "TIFF tile",
    "TIFF strip",
    "TIFF of 32-bit integers",
    "JPEG 2000",
    "JPEG 2000 in DICOM",
    "PPM comment",
}
FOR_A_QUARTER = {"JPEG 2000 of many tiles", "DICOM, deflated"}  # of the memory


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in FILES]
)
@pytest.mark.filterwarnings("ignore")
def test_what_a_file_names_is_checked_before_memory_is_taken(name: str) -> None:
    make, expected = FILES[name]
    memory = Bounds().memory // (4 if name in FOR_A_QUARTER else 1)
    data, most = make(), Bounds(memory=memory, seconds=0.3 if "within" in expected else 5)

    def decode() -> None:
        begun = time.process_time()
        try:
            decode_image(data, 256, bounds=most)
        finally:
            assert time.process_time() - begun < MOST_SECONDS

    check(decode, expected)


@pytest.mark.parametrize(
    ("mode", "kind", "options", "most"),
    [
        ("CMYK", "JPEG", {"progressive": True, "subsampling": 0}, 3),
        ("CMYK", "JPEG", {}, 1),
        ("RGB", "PNG", {"transparency": (0, 0, 0)}, 6),
        ("RGBA", "TIFF", {"compression": "tiff_lzw", "tiffinfo": {278: 600}}, 3),
        ("RGB", "WEBP", {}, 5),
        ("RGB", "AVIF", {}, 5),
        ("RGB", "TIFF", {"exif": TURNED}, 3),
        ("RGB", "HEIF", {}, 3),
        ("RGBA", "HEIF", {}, 4),
        ("L", "JPEG2000", {}, 2),
        ("L", "JPEG2000", {"precinct_size": (128, 128)}, 5),
    ],
)
def test_what_a_decoder_holds_beside_the_image_counts(
    mode: str, kind: str, options: dict[str, Any], most: int
) -> None:
    """In multiples of the image; the next smaller one does not suffice."""
    data, image = flat(mode, kind, 600, **options), 4 * 600 * 600
    decode_image(data, 64, bounds=Bounds(memory=most * image))
    with pytest.raises(UnusableImageError, match="too much memory"):
        decode_image(data, 64, bounds=Bounds(memory=(most - 1) * image))
