"""Tests of image files without their metadata: the same pixels, in the same direction, and nothing else."""

import io
import zlib
from typing import Any

import numpy as np
import pytest
from picture_kit import dicom, saved
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from ucds.data.decode import UnusableImageError, decode_image, without_metadata

NAME = "Mrs Miller"
SIDES = (256, 31)
MODES = {
    "JPEG": ("RGB", "L", "CMYK"),
    "PNG": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"),
    "WEBP": ("RGB", "RGBA"),
    "TIFF": ("RGB", "L", "I;16", "F", "CMYK"),
    "GIF": ("P",),
    "BMP": ("RGB",),
    "AVIF": ("RGB",),
    "JPEG2000": ("RGB",),
    "HEIF": ("RGB",),
    "PPM": ("RGB",),
}
CASES = [(form, mode, 1 + 5 * (mode == "RGB")) for form, modes in MODES.items() for mode in modes]
CASES += [(form, "RGB", 7) for form in ("JPEG", "PNG", "WEBP", "TIFF", "HEIF")]


def _picture(mode: str, size: tuple[int, int] = (200, 150)) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 4), dtype=np.uint8)
    colours = Image.fromarray(noise, "RGBA").resize(size, Image.Resampling.BICUBIC)
    if mode == "I;16":
        return Image.fromarray(np.asarray(colours.convert("L")).astype(np.uint16) * 257)
    return colours.convert(mode)


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E], exif[0x013B] = orientation, NAME, NAME
    exif.get_ifd(0x8825)[1] = "N"
    return exif


def _written(form: str, mode: str = "RGB", orientation: int = 1, **more: Any) -> bytes:
    """An image with all the metadata that its format takes, and words behind its end."""
    told: dict[str, Any] = {}
    if form in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"):
        told["exif"] = _exif(orientation)
        told["icc_profile"] = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        told["xmp"] = f"<x:xmpmeta>{NAME}</x:xmpmeta>".encode()
    if form in ("JPEG", "GIF"):
        told["comment"] = NAME.encode()
    if form == "PNG":
        told["pnginfo"] = PngInfo()
        told["pnginfo"].add_text("Author", NAME)
        told["pnginfo"].add_text("Comment", NAME, zip=True)
    return saved(_picture(mode), form, **told | more) + NAME.encode() * (form not in ("HEIF", "AVIF", "PPM"))


def _same_pixels(one: bytes, other: bytes) -> bool:
    return all(np.array_equal(decode_image(one, side), decode_image(other, side)) for side in SIDES)


def _told(data: bytes) -> set[str]:
    """What an image file tells besides its pixels."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        harmless = {"jfif", "jfif_version", "jfif_unit", "jfif_density", "adobe", "adobe_transform"}
        harmless |= {"progressive", "progression", "transparency", "interlace"}
        found = set(image.info) - harmless
        if dict(image.getexif()).keys() <= {0x0112} and not image.getexif().get_ifd(0x8825):
            found -= {"exif"}
        if image.info.get("dpi") == (72, 72):  # what Pillow assumes
            found -= {"dpi"}
        return found


@pytest.mark.parametrize(("form", "mode", "orientation"), CASES)
def test_every_format_keeps_pixels_and_direction_and_nothing_else(
    form: str, mode: str, orientation: int
) -> None:
    data = _written(form, mode, orientation)
    bare = without_metadata(data)
    assert _same_pixels(bare, data)
    assert _told(bare) == set()
    assert NAME.encode() not in bare
    assert without_metadata(bare) == bare  # it is charged once, whoever has removed the metadata


@pytest.mark.parametrize("more", [{"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 2}])
def test_a_jpeg_of_any_structure_keeps_its_compressed_pixels(more: dict[str, Any]) -> None:
    data = _written("JPEG", orientation=3, **more)
    bare = without_metadata(data)
    assert _same_pixels(bare, data)
    assert Image.open(io.BytesIO(bare)).format == "JPEG"
    tables = data.index(b"\xff\xdb"), bare.index(b"\xff\xdb")
    assert bare[tables[1] :] == data[tables[0] : -len(NAME)].replace(_comment(NAME), b"")


def _comment(text: str) -> bytes:
    return b"\xff\xfe" + (len(text) + 2).to_bytes(2) + text.encode()


@pytest.mark.parametrize(
    "change", ["second picture", "thumbnail", "no JFIF", "between the scans", "fill bytes"]
)
def test_a_jpeg_tells_nothing_by_its_rarer_parts(change: str) -> None:
    data = saved(_picture("RGB"), "JPEG", progressive=True)
    if change == "second picture":
        data = saved(_picture("RGB"), "MPO", save_all=True, append_images=[_picture("RGB").rotate(90)])
    elif change == "thumbnail":
        part = b"JFXX\0\x10" + NAME.encode()
        data = data[:2] + b"\xff\xe0" + (2 + len(part)).to_bytes(2) + part + data[2:]
    elif change == "no JFIF":
        data = data[:2] + data[20:]
    elif change == "between the scans":
        second = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
        data = data[:second] + _comment(NAME) + data[second:]
    elif change == "fill bytes":
        data = data[:2] + bytes([0xFF]) * 50 + data[2:]
    bare = without_metadata(data)
    assert bare.startswith(b"\xff\xd8")
    assert _same_pixels(bare, data)
    assert NAME.encode() not in bare
    assert bare.count(b"\xff\xd9") == 1


def test_a_direction_that_only_xmp_names_is_kept() -> None:
    words = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>' + NAME.encode()
    plain = _plain("JPEG")
    data = plain[:2] + b"\xff\xe1" + (len(words) + 2).to_bytes(2) + words + plain[2:]
    assert not np.array_equal(decode_image(data, 64), decode_image(plain, 64))
    bare = without_metadata(data)
    assert _same_pixels(bare, data)
    assert NAME.encode() not in bare


def _plain(form: str, **options: Any) -> bytes:
    return saved(_picture("RGB", (90, 60)), form, **options)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_file_without_metadata_stays_as_it_is(form: str) -> None:
    assert without_metadata(_plain(form)) == _plain(form)


def test_further_frames_are_left_out() -> None:
    for form in ("PNG", "GIF", "WEBP", "TIFF"):
        data = _plain(form, save_all=True, append_images=[_picture("RGB", (90, 60)).rotate(90)])
        bare = without_metadata(data)
        assert getattr(Image.open(io.BytesIO(bare)), "n_frames", 1) == 1
        assert _same_pixels(bare, data)


def test_a_dicom_file_gives_its_pixels_and_no_name() -> None:
    pixels = np.random.default_rng(0).integers(0, 4096, (60, 80), dtype=np.uint16)
    data = dicom(pixels, BitsStored=12, HighBit=11, PatientName=NAME)
    bare = without_metadata(data)
    assert bare.startswith(b"\x89PNG")
    assert NAME.encode() not in bare
    assert _same_pixels(bare, data)


SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_what_is_not_an_image_is_refused(form: str) -> None:
    whole = _plain(form)
    for spoiled in (SECRET, SECRET + whole, whole[: len(whole) // 2], whole[:8] + SECRET, b""):
        with pytest.raises(UnusableImageError):
            without_metadata(spoiled)


@pytest.mark.parametrize(
    ("mode", "content"), [("RGB", b"\0\1\0"), ("L", b"\0"), ("P", b"\0" * 9), ("L", b"\0\1")]
)
def test_a_damaged_transparent_colour_costs_no_picture(mode: str, content: bytes) -> None:
    data = saved(_picture(mode), "PNG")
    end = data.index(b"IDAT") - 4
    chunk = len(content).to_bytes(4) + b"tRNS" + content + bytes(4)  # its checksum is wrong
    if mode != "P" and len(content) != 2:
        chunk = chunk[:-4] + zlib.crc32(b"tRNS" + content).to_bytes(4)
    damaged = data[:end] + chunk + data[end:]
    assert np.array_equal(decode_image(damaged, 64), decode_image(data, 64))
    assert without_metadata(damaged) == without_metadata(data)
