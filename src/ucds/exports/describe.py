"""Describes an exported model for those who run it without this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ucds.backbones.spec import BackboneSpec
from ucds.data.dataset import ImageView
from ucds.training.inputs import stored_size, view_for
from ucds.training.model_file import StoredModel

FORMAT = "ucds-export/1"


@dataclass(frozen=True)
class Description:
    """Contents of the JSON file beside an exported model, which its metadata holds too.

    Attributes:
        format: name and version of the form of this description.
        model: name of the run that made the model.
        fingerprint: digits that change with any prototype; cluster numbers of equal ones mean the same.
        role: side that trained the model.
        n_clusters: number of clusters, K.
        encoder: name of the encoder.
        input: name of the input, and its shape with "n" for any number of samples.
        outputs: names of the outputs in their order, and the shape of each.
        transform: way from an image file to the input, see :func:`describe_transform`; ``None`` for
            embeddings, which are taken as they are.
        made_with: versions of the packages that wrote the file.
    """

    format: str
    model: str
    fingerprint: str
    role: str
    n_clusters: int
    encoder: str
    input: dict[str, Sequence[str | int]]
    outputs: dict[str, Sequence[str | int]]
    transform: dict[str, Any] | None
    made_with: dict[str, str]


def describe(stored: StoredModel) -> Description:
    """Describe a model as it is exported."""
    card, spec = stored.card, stored.card.backbone
    view = view_for(spec)
    shape: list[str | int] = ["n", *view.input_shape] if isinstance(view, ImageView) else ["n", spec.width]
    outputs: dict[str, Sequence[str | int]] = {
        "probabilities": ["n", card.n_clusters],
        "features": ["n", card.bottleneck_width],
    }
    if isinstance(view, ImageView):
        outputs["embeddings"] = ["n", spec.width]
    return Description(
        format=FORMAT,
        model=card.name,
        fingerprint=stored.fingerprint,
        role=card.role,
        n_clusters=card.n_clusters,
        encoder=spec.name,
        input={input_name(spec): shape},
        outputs=outputs,
        transform=describe_transform(spec),
        made_with={name: version(name) for name in ("ucds", "torch")},
    )


def input_name(spec: BackboneSpec) -> str:
    """Return the name of an exported model's input."""
    return "embeddings" if spec.input_size is None else "images"


def describe_transform(spec: BackboneSpec) -> dict[str, Any] | None:
    """Describe the way from an image file to the model's input; ``None`` for a model of embeddings.

    The steps are those of ``docs/inputs.md``, in this order: upright RGB, resize to a square, cut out the
    centre, scale to 0 .. 1, subtract the mean, divide by the standard deviation.
    """
    view = view_for(spec)
    if not isinstance(view, ImageView):
        return None
    side = stored_size(spec)
    return {
        "colours": "RGB, transparency on white, turned upright by EXIF",
        "resize": [side, side],
        "interpolation": "bilinear with antialiasing, the aspect ratio is not kept",
        "crop": [view.crop, view.crop],
        "offset": [(side - view.crop) // 2] * 2,
        "divide_by": 255,
        "mean": list(view.mean),
        "std": list(view.std),
        "layout": "float32, (n, 3, height, width)",
    }
