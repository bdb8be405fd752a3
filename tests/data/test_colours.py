"""One image for each way of storing pixels; what is right was computed by hand, or stands in the standard.

Every image is a square of ``SIDE`` pixels, so that nothing is resized.
"""

import runpy
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from picture_kit import chunk, png, saved
from PIL import Image

from ucds.data.decode import decode_image

SIDE = 16
RAMP = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)  # 0 .. 255
TRANSFORM = {"resize": [SIDE, SIDE], "crop": [SIDE, SIDE], "offset": [0, 0], "divide_by": 255}
TRANSFORM |= {"mean": [0, 0, 0], "std": [1, 1, 1]}
EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_model.py"

pytestmark = pytest.mark.filterwarnings("ignore")


def tiff(values: np.ndarray | bytes, bits: int, white: int = 1, sign: int = 1, alpha: bool = False) -> bytes:
    """A TIFF of one channel; `white` 0: white is zero; `sign` 1 to 3: unsigned, signed, float.

    With `alpha`, a second channel of 8 bits holds it, and the values are multiplied by it.
    """
    data = values if isinstance(values, bytes) else values.tobytes()
    tags = {256: SIDE, 257: SIDE, 258: bits, 259: 1, 262: white, 273: 8, 277: 1 + alpha, 278: SIDE}
    tags |= {279: len(data), 338 if alpha else 339: 1 if alpha else sign}
    entries = {tag: struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()}
    if alpha:
        entries[258] = struct.pack("<HHIHH", 258, 3, 2, 8, 8)
    start = b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", 10)
    return start + b"".join(entries.values()) + bytes(4)


def packed(rows: np.ndarray, depth: int, kind: int, transparent: tuple[int, ...] = ()) -> bytes:
    """A PNG of samples of 16 bits, or of packed bytes, with a transparent value."""
    lines = b"".join(b"\0" + line.tobytes() for line in rows.astype(">u2" if depth == 16 else np.uint8))
    extra = chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)) if transparent else b""
    return png(SIDE, SIDE, zlib.compress(lines), depth, kind, extra)


def bmp(alpha: int) -> bytes:
    """A BMP of 32 bits with a mask for alpha, which is the same everywhere."""
    pixels = np.full((SIDE, SIDE, 4), alpha, np.uint8)
    pixels[..., :3] = RAMP[..., None]
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    head = (
        struct.pack("<IiiHHIIiiII", 108, SIDE, -SIDE, 1, 32, 3, pixels.nbytes, 0, 0, 0, 0) + masks + bytes(52)
    )
    return b"BM" + struct.pack("<IHHI", 122 + pixels.nbytes, 0, 0, 122) + head + pixels.tobytes()


def twelve_bits(values: np.ndarray) -> bytes:
    pairs = values.reshape(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], 1)
    return packed.astype(np.uint8).tobytes()


def stretched(values: np.ndarray) -> np.ndarray:
    return (values - values.min()) * 255.0 / (values.max() - values.min())


FOUR_BITS = (RAMP[:, ::2] // 16) * 17  # each byte holds a value twice
NEAR = np.stack([RAMP * 257, RAMP * 0 + 7, RAMP * 0 + 9], -1)  # differ in the lower byte, too
NEAR_TWINS = np.where((np.arange(SIDE) % 2)[None, :, None], NEAR, NEAR // 256 * 256 + 200)
KINDS: dict[str, tuple[bytes, np.ndarray]] = {
    "8 bits": (tiff(RAMP.astype(np.uint8), 8), RAMP),
    "8 bits, white is zero": (tiff(RAMP.astype(np.uint8), 8, 0), 255 - RAMP),
    "16 bits, dark": (tiff((RAMP * 4).astype("<u2"), 16), RAMP * 4 / 257),
    "16 bits, white is zero": (tiff((RAMP * 257).astype("<u2"), 16, 0), 255 - RAMP),
    "12 bits": (tiff(twelve_bits(RAMP * 16), 12), RAMP * 16 * 255 / 4095),
    "signed 8 bits": (tiff((RAMP // 2 - 60).astype("i1"), 8, 1, 2), stretched(RAMP // 2)),
    "signed 16 bits above zero": (tiff((RAMP * 10).astype("<i2"), 16, 1, 2), RAMP),
    "signed 16 bits below zero": (tiff((RAMP * 10 - 99).astype("<i2"), 16, 1, 2), RAMP),
    "32 bits": (tiff((RAMP * 10).astype("<u4"), 32), RAMP),
    "32 bits over two thousand million": (tiff((RAMP + 2**31 - 99).astype("<u4"), 32), RAMP),
    "signed 32 bits above zero": (tiff(RAMP.astype("<i4"), 32, 1, 2), RAMP),
    "signed 32 bits below zero": (tiff((RAMP - 1).astype("<i4"), 32, 1, 2), RAMP),
    "float of 0 .. 1": (tiff((RAMP / 255).astype("<f4"), 32, 1, 3), RAMP),
    "float of 0 .. 255": (tiff((RAMP / 2).astype("<f4"), 32, 1, 3), RAMP),
    "float, white is zero": (tiff(RAMP.astype("<f4"), 32, 0, 3), 255 - RAMP),
    "16-bit PGM, dark": (b"P5 16 16 65535\n" + (RAMP * 4).astype(">u2").tobytes(), RAMP * 4 / 257),
    "12-bit PGM": (b"P5 16 16 4095\n" + (RAMP * 16).astype(">u2").tobytes(), RAMP * 16 * 255 / 4095),
    "BMP, alpha empty everywhere": (bmp(0), RAMP),
    "BMP, alpha full": (bmp(255), RAMP),
    "BMP, alpha half": (bmp(128), (RAMP * 128 + 255 * 127) / 255),
    "tRNS of 16-bit grey": (packed(RAMP * 257, 16, 0, (40 * 257,)), np.where(RAMP == 40, 255, RAMP)),
    "tRNS of 4-bit grey": (packed(FOUR_BITS, 4, 0, (3,)), np.where(RAMP // 16 == 3, 255, RAMP // 16 * 17)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_stored_type_decides_how_grey_is_brought_to_8_bits(kind: str) -> None:
    data, right = KINDS[kind]
    assert np.abs(decode_image(data, SIDE).astype(float) - right).max() <= 0.75


def test_the_transparent_colour_of_16_bits_is_compared_with_all_bits() -> None:
    found = decode_image(packed(NEAR_TWINS.reshape(SIDE, -1), 16, 2, (40 * 257, 7, 9)), SIDE).astype(int)
    white = (NEAR_TWINS == [40 * 257, 7, 9]).all(-1)
    assert white.sum() in (0, 1)
    assert (found[:, white] == 255).all()
    assert (found.transpose(1, 2, 0)[~white] == (NEAR_TWINS >> 8)[~white]).all()


def test_alpha_that_is_multiplied_already_is_divided() -> None:
    values = np.stack([RAMP // 2, np.full_like(RAMP, 128)], -1).astype(np.uint8)
    found = decode_image(tiff(values, 8, alpha=True), SIDE)
    assert np.abs(found - (RAMP // 2 + 127.0)).max() <= 2


def rgba(mode: str) -> Image.Image:
    colours = np.stack([RAMP, RAMP[::-1], RAMP.T, RAMP], -1).astype(np.uint8)
    return Image.fromarray(colours, "RGBA").convert("RGB" if mode == "PA" else "RGBA")


MODES = {mode: saved(rgba(mode).convert(mode), "PNG") for mode in ("1", "L", "LA", "RGB", "RGBA")}
MODES |= {
    mode: saved(rgba(mode).convert("RGB").convert(mode), "TIFF") for mode in ("P", "CMYK", "YCbCr", "RGBX")
}
MODES["P with transparency"] = saved(rgba("P").convert("RGB").quantize(16), "PNG", transparency=3)
MODES["PA"] = saved(rgba("P").quantize(16), "PNG")
MODES["I;16B"] = saved(Image.frombytes("I;16B", (SIDE, SIDE), (RAMP * 99).astype(">u2").tobytes()), "TIFF")
TURNED = Image.Exif()
TURNED[0x0112] = 6
MODES["turned"] = saved(rgba("RGB").convert("RGB"), "JPEG", exif=TURNED)
MODES["large JPEG"] = saved(rgba("RGB").convert("RGB").resize((300, 200)), "JPEG")
MODES["16-bit colour"] = packed(NEAR.reshape(SIDE, -1), 16, 2)


@pytest.fixture(scope="module")
def prepare() -> Callable[..., np.ndarray]:
    return runpy.run_path(str(EXAMPLE))["prepare"]


@pytest.mark.parametrize("name", [*KINDS, *MODES])
def test_the_recipe_of_an_exported_model_gives_what_predict_gives(
    name: str, prepare: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    data = KINDS[name][0] if name in KINDS else MODES[name]
    (tmp_path / "x").write_bytes(data)
    found = prepare(tmp_path / "x", TRANSFORM)
    np.testing.assert_array_equal(np.rint(found * 255), decode_image(data, SIDE))
