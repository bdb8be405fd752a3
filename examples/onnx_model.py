"""An exported model sorts images without this package: ONNX Runtime, Pillow and NumPy are enough.

    ucds export RUN --format onnx --out model.onnx
    python examples/onnx_model.py model.onnx FOLDER

Prints the cluster and its probability for each image below a folder. The model's file says how an image
becomes the model's input, so that the script holds no number of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it would send statistics of its use from here on
import onnxruntime

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


WHITE_IS_ZERO, BITS, SAMPLE_FORMAT, ORIENTATION = 262, 258, 339, 0x0112


def prepare(path: Path, transform: dict[str, Any]) -> np.ndarray:
    """Return an image as the model takes it, ``(3, height, width)`` float32."""
    with Image.open(path) as image:
        image.draft(None, (2 * transform["resize"][0], 2 * transform["resize"][1]))
        transparent = transparent_value(image)
        orientation = image.getexif().get(ORIENTATION, 1)
        image.load()
        colours = grey_shades(image, transparent) if is_deep(image) else on_white(image, transparent)
        if image.format == "TIFF":  # Pillow has turned it
            orientation = 1
    square = colours.resize(transform["resize"], Image.Resampling.BILINEAR)
    square.info = {}
    square.getexif()[ORIENTATION] = orientation
    square = ImageOps.exif_transpose(square)
    (top, left), (height, width) = transform["offset"], transform["crop"]
    pixels = np.asarray(square)[top : top + height, left : left + width] / transform["divide_by"]
    normal = (pixels - transform["mean"]) / transform["std"]
    inputs: np.ndarray = normal.transpose(2, 0, 1).astype(np.float32)
    return inputs


def transparent_value(image: Image.Image) -> Any:
    """Return the value of a PNG that stands for white, in the depth that Pillow decodes it to."""
    value: Any = image.info.get("transparency")
    tiles = getattr(image, "tile", None)
    depth = str(tiles[0].args) if tiles else ""
    if depth in ("L;2", "L;4"):
        return value * {"L;2": 85, "L;4": 17}[depth]
    if isinstance(value, tuple) and depth == "RGB;16B":
        return tuple(one >> 8 for one in value)
    return value


def on_white(image: Image.Image, transparent: Any) -> Image.Image:
    """Bring an image of 8 bits to RGB, laid on white where it is transparent."""
    no_alpha = image.format == "BMP" and image.mode == "RGBA" and not image.getchannel("A").getbbox()
    if not image.has_transparency_data or no_alpha:
        return image.convert("RGB")
    if transparent is not None:
        image.info["transparency"] = transparent
    layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def is_deep(image: Image.Image) -> bool:
    """Tell whether grey values have more than 8 bits, or a sign."""
    return image.mode[0] in "IF" or (image.mode == "L" and tags_of(image).get(SAMPLE_FORMAT) == (2,))


def grey_shades(image: Image.Image, transparent: Any) -> Image.Image:
    """Bring deep grey to 8 bits: 12 and 16 bits by their full range, others by the image's own."""
    tags = tags_of(image)
    stored: np.ndarray = np.asarray(image)
    if image.mode == "L":
        stored = stored.view(np.int8)
    elif image.mode == "I" and tags.get(BITS) == (32,) and tags.get(SAMPLE_FORMAT, (1,)) == (1,):
        stored = stored.view(np.uint32)
    values: np.ndarray = stored.astype(np.float32 if image.mode.startswith("I;16") else np.float64)
    low, high = float(values.min()), float(values.max())
    if image.mode.startswith("I;16"):
        low, high = 0.0, 4095.0 if tags.get(BITS) == (12,) else 65535.0
    elif image.mode == "I" and image.format == "PPM":
        low, high = 0.0, 65535.0
    scale = 255 / (high - low) if high > low else 0.0
    shades: np.ndarray = ((values - low) * scale + 0.5).clip(0, 255).astype(np.uint8)
    if tags.get(WHITE_IS_ZERO) == 0:
        shades = 255 - shades
    if transparent is not None:
        shades[values == transparent] = 255
    return Image.fromarray(shades).convert("RGB")


def tags_of(image: Image.Image) -> dict[int, Any]:
    """Return the tags of a TIFF."""
    return dict(getattr(image, "tag_v2", {}))


def main(model: str, folder: str) -> None:
    session = onnxruntime.InferenceSession(model)
    described = json.loads(session.get_modelmeta().custom_metadata_map["ucds"])
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix.lower() in SUFFIXES:
            inputs = prepare(path, described["transform"])[None]
            probabilities = session.run(["probabilities"], {"images": inputs})[0][0]
            print(f"{path.relative_to(folder)}\t{probabilities.argmax()}\t{probabilities.max():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
