"""Tests of what is read from the ``preprocessor_config.json`` of a repository."""

import json
from pathlib import Path
from typing import Any

import pytest

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.encoders.preprocessor import Preparation, read_preparation
from ucds.errors import InputError

HALF = (0.5, 0.5, 0.5)
OPENAI_MEAN, OPENAI_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SQUARE = {"height": 224, "width": 224}

# As the hub's files have them, with entries that change nothing.
USUAL = {"do_convert_rgb": None, "do_normalize": True, "do_rescale": True, "do_resize": True}
USUAL |= {"image_processor_type": "ImageProcessor", "resample": 3, "rescale_factor": 0.00392156862745098}
OPENAI = USUAL | {"image_mean": OPENAI_MEAN, "image_std": OPENAI_STD}
IMAGENET = USUAL | {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}

FORMS: dict[str, tuple[dict[str, Any], Preparation]] = {
    "CLIP": (
        OPENAI | {"crop_size": SQUARE, "do_center_crop": True, "size": {"shortest_edge": 224}},
        Preparation(224, 224, OPENAI_MEAN, OPENAI_STD),
    ),
    "CLIP of the first years": (
        OPENAI | {"crop_size": 224, "do_center_crop": True, "size": 224},
        Preparation(224, 224, OPENAI_MEAN, OPENAI_STD),
    ),
    "DINOv2": (
        IMAGENET | {"crop_size": SQUARE, "do_center_crop": True, "size": {"shortest_edge": 256}},
        Preparation(256, 224, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "SigLIP and ViT": (
        USUAL | {"image_mean": HALF, "image_std": HALF, "size": SQUARE},
        Preparation(224, 224, HALF, HALF),
    ),
    "ConvNeXt": (
        IMAGENET | {"crop_pct": 0.875, "size": {"shortest_edge": 224}},
        Preparation(256, 224, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "ConvNeXt without a margin": (
        {"crop_pct": 0.875, "size": {"shortest_edge": 384}},
        Preparation(384, 384, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "pixels in -1..1 by their factor": (
        {"size": 32, "rescale_factor": 1 / 127.5, "image_mean": (1, 1, 1), "image_std": (1, 1, 1)},
        Preparation(32, 32, HALF, HALF),
    ),
    "pixels in 0..1": (
        {"size": 32, "do_normalize": False},
        Preparation(32, 32, (0.0,) * 3, (1.0,) * 3),  # type: ignore[arg-type]
    ),
    "pixels in 0..255": (
        {"size": 32, "do_normalize": False, "do_rescale": False},
        Preparation(32, 32, (0.0,) * 3, (1 / 255,) * 3),  # type: ignore[arg-type]
    ),
}


def written(folder: Path, content: object) -> Path:
    path = folder / "preprocessor_config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_that_the_hub_holds_are_understood(form: str, tmp_path: Path) -> None:
    content, wanted = FORMS[form]
    found = read_preparation(written(tmp_path, content))
    assert (found.resize, found.crop) == (wanted.resize, wanted.crop)
    assert found.mean == pytest.approx(wanted.mean)
    assert found.std == pytest.approx(wanted.std)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"size": None},
        {"size": {"longest_edge": 512}},
        {"size": {"height": 224, "width": 384}},
        {"size": {"height": 224}},
        {"size": 0},
        {"size": -224},
        {"size": "large"},
        {"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 256},
        {"size": 224, "image_mean": [0.5]},
        {"size": 224, "image_std": [0.5, 0.0, 0.5]},
        {"size": 224, "rescale_factor": -1},
        '{"size": 224, "rescale_factor": NaN}',
        '{"size": 224, "image_mean": [0, 0, Infinity]}',
        "[]",
        "no JSON",
        "",
    ],
)
def test_another_form_is_refused_in_one_line(content: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="preprocessor_config.json is not understood: [^\n]+$"):
        read_preparation(written(tmp_path, content))
