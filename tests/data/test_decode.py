"""Hostile and unusual files, one by one. Nothing may be raised but `UnusableImageError`."""

import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from picture_kit import chunk, dicom, png, saved
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from ucds.data.decode import COMMON_FORMATS, Bounds, UnusableImageError, decode_image, describe_unreadable
from ucds.data.folders import scan_folder

SIZE = 32

pytestmark = pytest.mark.filterwarnings("ignore")


def encoding(kind: str, **options) -> Callable[[], bytes]:
    return partial(lambda **options: saved(gradient(), kind, quality=95, **options), **options)


def gradient(size: tuple[int, int] = (SIZE, SIZE)) -> Image.Image:
    """Red grows to the right, green downwards, blue is constant."""
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    return Image.fromarray(np.stack([x, y, np.full_like(x, 90)], axis=-1).astype(np.uint8))


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB")).transpose(2, 0, 1).astype(int)


def decoded(data: bytes, size: int = SIZE) -> np.ndarray:
    result = decode_image(data, size)
    assert result.shape == (3, size, size)
    assert result.dtype == np.uint8
    assert result.flags.c_contiguous
    return result.astype(int)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *((kind, "RGB") for kind in ("WEBP", "BMP", "GIF", "PPM", "JPEG2000", "AVIF", "HEIF")),
        *(("JPEG", mode) for mode in ("RGB", "CMYK", "L")),
        *(("TIFF", mode) for mode in ("RGB", "L", "1", "P", "CMYK", "YCbCr", "RGBX")),
    ],
)
def test_formats_and_modes_become_rgb(kind, mode):
    image = gradient().convert(mode)
    assert np.abs(decoded(saved(image, kind, quality=95)) - pixels(image)).mean() < 8


@pytest.mark.parametrize("size", [(SIZE, SIZE), (100, 60), (31, 900), (1, 1), (1, 3000), (33, 32)])
def test_any_shape_becomes_a_square_with_antialiasing(size):
    expected = pixels(gradient(size).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    assert (decoded(saved(gradient(size))) == expected).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_transparency_is_laid_on_white(mode):
    alpha = Image.new("L", (SIZE, SIZE), 255)
    alpha.paste(0, (0, 0, SIZE // 2, SIZE))
    half = decoded(saved(Image.new("RGBA", (4, 4), (100, 0, 200, 128))))[:, 0, 0]
    assert np.abs(half - [177, 127, 227]).max() <= 1
    image = Image.new("RGB", (SIZE, SIZE), (40, 40, 40))
    image.putalpha(alpha)
    result = decoded(saved(image.convert(mode)) if mode != "PA" else saved(image.quantize(4)))
    assert (result[:, :, : SIZE // 2] == 255).all()
    assert (np.abs(result[:, :, SIZE // 2 :] - 40) <= 2).all()


@pytest.mark.parametrize(("mode", "black"), [("P", 0), ("RGB", (0, 0, 0)), ("L", 0)])
def test_a_transparent_colour_becomes_white(mode, black):
    image = Image.new(mode, (8, 8), black)
    if mode == "P":
        image.putpalette([0, 0, 0] * 256)
    assert (decoded(saved(image, transparency=black)) == 255).all()


@pytest.mark.parametrize(
    ("kind", "orientation"),
    [*(("JPEG", turn) for turn in range(1, 9)), ("PNG", 6), ("TIFF", 6), ("WEBP", 6)],
)
def test_images_are_turned_upright(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    transpose = Image.Transpose
    stored_as = [  # how a camera held that way stores the upright scene
        None,
        transpose.FLIP_LEFT_RIGHT,
        transpose.ROTATE_180,
        transpose.FLIP_TOP_BOTTOM,
        transpose.TRANSPOSE,
        transpose.ROTATE_90,
        transpose.TRANSVERSE,
        transpose.ROTATE_270,
    ][orientation - 1]
    stored = gradient() if stored_as is None else gradient().transpose(stored_as)
    assert np.abs(decoded(saved(stored, kind, exif=exif)) - pixels(gradient())).mean() < 8


def with_segment(marker: int, content: bytes) -> bytes:
    data = saved(gradient(), "JPEG", quality=95)
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + data[2:]


def with_chunk(name: bytes, content: bytes, checksum: int | None = None) -> bytes:
    data, part = saved(gradient()), chunk(name, content)
    return data[:33] + (part if checksum is None else part[:-4] + struct.pack(">I", checksum)) + data[33:]


def with_tag(tag: int, value: bytes | int, kind: int) -> bytes:
    directory = ImageFileDirectory_v2()
    directory[tag], directory.tagtype[tag] = value, kind
    return saved(gradient(), "TIFF", tiffinfo=directory)


def turned(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


GARBAGE = (b"garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\1", turned(0), turned(60000))
MUCH = zlib.compress(b"a" * 3_000_000)
METADATA = [
    *(encoding(kind, exif=data) for kind in ("JPEG", "PNG", "WEBP") for data in GARBAGE),
    *(encoding(kind, icc_profile=b"\xff junk" * 99) for kind in ("JPEG", "PNG", "WEBP", "AVIF", "TIFF")),
    *(
        partial(with_segment, marker, content)
        for marker, content in (
            (0xE0, b"JFIF"),
            (0xEE, b"Adobe"),
            (0xED, b"Photoshop 3.0\x008BIM\x03\xed"),
            (0xE2, b"MPF\0junk"),
            (0xE1, b"http://ns.adobe.com/xap/1.0/\0\xff"),
        )
    ),
    *(
        partial(with_chunk, name, content)
        for name, content in (
            (b"zTXt", b"workflow\0\0" + MUCH),
            (b"iCCP", b"x\0\0" + MUCH),
            (b"tEXt", b"x" * 3_000_000),
            (b"gAMA", b""),
            (b"eXIf", b"garbage"),
            (b"acTL", b"junk"),
        )
    ),
    partial(with_chunk, b"tEXt", b"a\0b", 7),
    *(partial(with_tag, 34665, value, 4) for value in (99_999_999, 3)),
    partial(with_tag, 700, b"\xff", 1),
]


@pytest.mark.parametrize("make", METADATA, ids=lambda make: str(make.args or make.keywords)[:40])
def test_metadata_cost_no_picture(make: Callable[[], bytes]) -> None:
    assert np.abs(decoded(make()) - pixels(gradient())).mean() < 8


def test_the_orientation_survives_damaged_texts_and_profiles() -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    turned = saved(gradient().transpose(Image.Transpose.ROTATE_180), "PNG", exif=exif)
    text = with_chunk(b"zTXt", b"x\0\0" + MUCH)[33 : -len(saved(gradient())) + 33]
    assert (decoded(turned[:33] + text + turned[33:]) == pixels(gradient())).all()


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])  # MPO: JPEGs of telephones
def test_the_first_frame_of_an_animation_is_taken(kind):
    first, second = gradient(), Image.new("RGB", (SIZE, SIZE), "red")
    data = saved(first, kind, save_all=True, append_images=[second])
    assert np.abs(decoded(data) - pixels(first)).mean() < 8


def test_big_jpegs_are_decoded_at_an_eighth_of_their_size():
    data = saved(gradient((1600, 1200)), "JPEG", quality=95)
    enough = Bounds(memory=len(data) + 4 * 200 * 150 + 4 * SIZE * 150 + 20 * 200)
    result = decode_image(data, SIZE, bounds=enough).astype(int)
    expected = pixels(gradient((1600, 1200)).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    assert np.abs(result - expected).max() <= 4
    with pytest.raises(UnusableImageError, match="too much memory"):
        decode_image(data, SIZE, bounds=Bounds(memory=enough.memory - 1))


@pytest.mark.parametrize("side", [10_000, 15_000, 60_000, 2**31 - 1])
@pytest.mark.parametrize("as_errors", [False, True])
def test_bombs_are_refused_before_decoding(side, as_errors):
    warnings.simplefilter("error" if as_errors else "ignore")
    with pytest.raises(UnusableImageError, match="too many pixels"):
        decode_image(png(side, side, zlib.compress(bytes(1000))), SIZE)


VALUES = np.array([-2000.0, -1000, 0, 40, 60, 400, 1000])
STORED = VALUES.astype(np.int16)[None].repeat(7, axis=0)
CT = {"WindowCenter": 40, "WindowWidth": 400}
PADDED = {"PixelPaddingValue": -2000}


def items(**elements) -> list:
    pydicom = pytest.importorskip("pydicom")
    item = pydicom.Dataset()
    for name, value in elements.items():
        setattr(item, name, value)
    return [item]


def window(values: np.ndarray) -> np.ndarray:
    """PS3.3 C.11.2.1.2.1 for the window of CT, with 0 and 255 as the ends of the output."""
    return 255 * ((values - 39.5) / 399 + 0.5).clip(0, 1)


RANGE = 255 * (VALUES + 2000) / 3000
EXACT = 255 * ((VALUES - 40) / 400 + 0.5).clip(0, 1)
SIGMOID = 255 / (1 + np.exp(-4 * (VALUES - 40) / 400))
TABLE = {"LUTDescriptor": [3, 0, 8], "LUTData": struct.pack("<3H", 10, 110, 210)}


@pytest.mark.parametrize(
    ("elements", "right"),
    [
        ({}, RANGE),
        (PADDED, [0, 0, 127.5, 132.6, 135.15, 178.5, 255]),
        (PADDED | {"PixelPaddingRangeLimit": -1000}, [0, 0, 0, 10.2, 15.3, 102, 255]),
        (
            PADDED | {"PhotometricInterpretation": "MONOCHROME1"},  # padding is black here, too
            [0, 255, 127.5, 122.4, 119.85, 76.5, 0],
        ),
        ({"PresentationLUTShape": "INVERSE"}, 255 - RANGE),
        (CT, window(VALUES)),
        ({"WindowCenter": [40, 500], "WindowWidth": [400, 2000]}, window(VALUES)),
        (CT | {"VOILUTFunction": "LINEAR_EXACT"}, EXACT),
        (CT | {"VOILUTFunction": "SIGMOID"}, SIGMOID),
        (CT | {"RescaleSlope": 2, "RescaleIntercept": -60}, window(2 * VALUES - 60)),
        (CT | {"RescaleSlope": -1, "RescaleIntercept": 0}, window(-VALUES)),
        ({"RescaleSlope": -1, "RescaleIntercept": 7}, 255 - RANGE),
        ({"VOILUTSequence": TABLE}, [10, 10, 10, 210, 210, 210, 210]),
        ({"WindowCenter": 40, "WindowWidth": 0}, RANGE),
    ],
)
def test_grey_dicom_is_shown_as_its_file_says(elements: dict, right: np.ndarray) -> None:
    made = {name: items(**value) if name.endswith("Sequence") else value for name, value in elements.items()}
    found = decode_image(dicom(STORED, **made), 7)
    np.testing.assert_allclose(found[0, 3], right, atol=0.51)


def test_coloured_dicom_is_read_and_brought_to_8_bits() -> None:
    plain = np.repeat(np.array([[[220, 0, 0], [0, 0, 220]]], np.uint8), 16, axis=1).repeat(32, axis=0)
    places = np.repeat(np.array([[0, 1]], np.uint8), 16, axis=1).repeat(32, axis=0)
    palette = np.array([[220, 0, 0], [0, 0, 220]]) * 257
    for data in (dicom(plain), dicom(plain.astype(np.uint16) * 257), dicom(places, "PALETTE COLOR", palette)):
        found = decode_image(data, 32)
        assert (found[:, :, 0].T == [220, 0, 0]).all()
        assert (found[:, :, -1].T == [0, 0, 220]).all()


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "DICOM"])
def test_truncated_files_are_refused(kind):
    data = dicom(np.zeros((32, 32), np.int16)) if kind == "DICOM" else saved(NOISE, kind)
    for length in (1, 10, len(data) // 3, len(data) * 2 // 3):
        with pytest.raises(UnusableImageError):
            decode_image(data[:length], SIZE)


@pytest.mark.parametrize(
    "content",
    [b"words, words", b"<svg/>", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\xff\xd8\xff", bytes(128) + b"DICM\xff\xff"],
)
def test_files_that_are_no_images_are_refused(content):
    with pytest.raises(UnusableImageError, match=r"x\.jpg: "):
        decode_image(content, SIZE, "x.jpg")


def test_formats_that_are_not_asked_for_and_many_pixels_are_refused() -> None:
    whole = dicom(np.zeros((32, 32), np.int16))
    with pytest.raises(UnusableImageError, match="not an image of a known format"):
        decode_image(whole, 32, formats=COMMON_FORMATS)
    with pytest.raises(UnusableImageError, match="too many pixels"):
        decode_image(whole, 32, bounds=Bounds(pixels=1000))


def test_their_files_are_found_where_they_can_be_read(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif")
    pytest.importorskip("pydicom")
    for name in ("a.heic", "b.DCM", "c.avif"):
        (tmp_path / name).touch()
    assert scan_folder(tmp_path).ids == ("a.heic", "b.DCM", "c.avif")


def test_what_to_install_is_said() -> None:
    found = describe_unreadable(Counter({".heic": 3, ".dcm": 1, ".txt": 9}))
    assert found is not None
    assert "3 .heic (pip install 'ucds[heif]')" in found
    assert "1 .dcm (pip install 'ucds[dicom]')" in found
    assert describe_unreadable(Counter({".txt": 9})) is None
