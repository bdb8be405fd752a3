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


def prepare(path: Path, transform: dict[str, Any]) -> np.ndarray:
    """Return an image as the model takes it, ``(3, height, width)`` float32."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB").resize(transform["resize"], Image.Resampling.BILINEAR)
    (top, left), (height, width) = transform["offset"], transform["crop"]
    pixels = np.asarray(image)[top : top + height, left : left + width] / transform["divide_by"]
    normal = (pixels - transform["mean"]) / transform["std"]
    inputs: np.ndarray = normal.transpose(2, 0, 1).astype(np.float32)
    return inputs


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
