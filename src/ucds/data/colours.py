"""Brings images of any mode to 8-bit RGB. The steps depend on how pixels are stored, not on their values.

``docs/inputs.md`` lists the steps for each kind of image; ``examples/onnx_model.py`` does the same alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

_STRIP_PIXELS = 2**20
_PHOTOMETRIC, _BITS, _SAMPLE_FORMAT = 262, 258, 339  # tags of TIFF
_STEPS = {"L;2": 85, "L;4": 17}  # between the 8-bit values of PNG files of 2 and 4 bits


def rgb_of(image: Image.Image, depth: str) -> Image.Image:
    """Bring a decoded image to 8-bit RGB; ``depth`` is Pillow's name of the pixels in the file, as "L;4"."""
    plain = image.mode == "RGB" and not image.has_transparency_data
    return image if plain else _way_to_rgb(image, depth)(image.copy())


def square_of(image: Image.Image, size: int, depth: str) -> Image.Image:
    """Bring a decoded image to a square of 8-bit RGB; a large one some rows at a time, without a copy."""
    narrow = image
    if image.width * image.height <= _STRIP_PIXELS:
        narrow = rgb_of(image, depth)
    elif image.mode != "RGB" or image.has_transparency_data:
        in_colour, narrow = _way_to_rgb(image, depth), Image.new("RGB", (size, image.height))
        for top, strip in _strips(image):
            part = in_colour(strip).resize((size, strip.height), Image.Resampling.BILINEAR)
            narrow.paste(part, (0, top))
    return narrow.resize((size, size), Image.Resampling.BILINEAR)


def with_exact_alpha(image: Image.Image, data: bytes) -> Image.Image:
    """Make the transparent colour of a 16-bit PNG transparent: Pillow reads the upper byte of each sample."""
    colour = np.array(image.info.pop("transparency"))
    with Image.open(io.BytesIO(data), formats=["PNG"]) as lower:
        lower.tile = [lower.tile[0]._replace(args="RGB;16L")]
        is_it = (np.asarray(image) == colour >> 8) & (np.asarray(lower) == colour & 255)
    image.putalpha(Image.fromarray(np.where(is_it.all(-1), 0, 255).astype(np.uint8)))
    return image


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Cut an image into strips of about a million pixels, each with its first row."""
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _way_to_rgb(image: Image.Image, depth: str) -> Callable[[Image.Image], Image.Image]:
    """Choose the function that brings each strip of an image to RGB."""
    is_signed = image.mode == "L" and getattr(image, "tag_v2", {}).get(_SAMPLE_FORMAT) == (2,)
    if image.mode == "F" or image.mode.startswith("I") or is_signed:
        return _grey(image)
    # Many programs write 32-bit BMP files whose fourth byte is empty, and holds no alpha.
    is_empty = (image.format, image.mode) == ("BMP", "RGBA") and not image.getchannel("A").getbbox()
    if image.has_transparency_data and not is_empty:
        return lambda strip: _on_white(strip, depth)
    return lambda strip: strip.convert("RGB")


def _on_white(strip: Image.Image, depth: str) -> Image.Image:
    colour: Any = strip.info.get("transparency")
    if depth in _STEPS:  # Pillow scales the pixels, but not their transparent value
        strip.info["transparency"] = colour * _STEPS[depth]
    elif isinstance(colour, tuple) and max(colour) > 255:
        strip.info["transparency"] = tuple(value >> 8 for value in colour)
    layer = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _grey(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Scale deep grey by the range of its type, or by the range of the image if the type has none."""
    tags, transparent = getattr(image, "tag_v2", {}), image.info.get("transparency")
    if image.mode.startswith("I;16"):
        ends = np.array([0, 4095 if tags.get(_BITS) == (12,) else 65535])
    elif image.mode == "I" and image.format == "PPM":
        ends = np.array([0, 65535])  # Pillow brings them to this range
    else:
        each = (_values(strip, tags) for _, strip in _strips(image))
        ends = np.array([(values.min(), values.max()) for values in each])
    if not np.isfinite(ends).all():
        raise ValueError("pixels that are NaN or infinite")
    low, high = float(ends.min()), float(ends.max())
    scale = 255 / (high - low) if high > low else 0.0

    def convert(strip: Image.Image) -> Image.Image:
        values = _values(strip, tags)
        shades = ((values - low) * scale + 0.5).clip(0, 255).astype(np.uint8)
        if tags.get(_PHOTOMETRIC) == 0:  # white is zero: Pillow inverts 8 bits only
            shades = 255 - shades
        if transparent is not None:
            shades[values == transparent] = 255
        return Image.fromarray(shades).convert("RGB")

    return convert


def _values(strip: Image.Image, tags: Any) -> npt.NDArray[Any]:
    """Return grey values as they are stored: Pillow confuses signed and unsigned bytes and words."""
    values = np.asarray(strip)
    if strip.mode == "L":
        values = values.view(np.int8)
    elif strip.mode == "I" and tags.get(_SAMPLE_FORMAT, (1,)) == (1,) and tags.get(_BITS) == (32,):
        values = values.view(np.uint32)
    return values.astype(np.float32 if strip.mode.startswith("I;16") else np.float64)
