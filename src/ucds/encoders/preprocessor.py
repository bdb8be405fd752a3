"""Reads from a hub's ``preprocessor_config.json`` how images are prepared for an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ucds.choices import IMAGENET_MEAN, IMAGENET_STD
from ucds.encoders.spec import ChannelTriple
from ucds.errors import InputError, first_problem
from ucds.received import read_text

PREPROCESSOR = "preprocessor_config.json"
_LARGEST_WITH_MARGIN = 384  # side from which on ConvNeXt's images are resized without a crop


@dataclass(frozen=True)
class Preparation:
    """Steps from a decoded image to the input of an encoder."""

    resize: int  # side in pixels to which images are brought before the crop
    crop: int  # side of the square crop
    mean: ChannelTriple  # of pixels in 0..1
    std: ChannelTriple

    def at(self, crop: int) -> Preparation:
        """Return a copy for another crop, with images resized in proportion."""
        return Preparation(round(self.resize * crop / self.crop), crop, self.mean, self.std)


class _Sizes(BaseModel):
    """A size in one of the forms that the hub's libraries have written over the years."""

    model_config = ConfigDict(extra="forbid")

    shortest_edge: int | None = None
    height: int | None = None
    width: int | None = None

    def side(self) -> int:
        """Return the side of the square that stands for the size."""
        if self.shortest_edge is not None and self.height is None:
            return self.shortest_edge
        if self.height is None or self.height != self.width:
            raise InputError(f"images of {self.height} x {self.width} pixels are not square")
        return self.height


class _Config(BaseModel):
    """The entries that this module reads; a repository holds many others."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    size: int | _Sizes
    crop_size: int | _Sizes | None = None
    crop_pct: float | None = None
    do_center_crop: bool | None = None
    do_rescale: bool | None = None
    rescale_factor: float | None = None
    do_normalize: bool | None = None
    image_mean: ChannelTriple | None = None
    image_std: ChannelTriple | None = None


def read_preparation(path: Path) -> Preparation:
    """Read the size, crop, mean and standard deviation of a ``preprocessor_config.json``.

    Another form than the one that the image processors of CLIP, DINOv2, SigLIP, ViT and ConvNeXt write is
    refused, and so are sizes that are no squares.
    """
    try:
        config = _Config.model_validate_json(read_text(path.resolve()))
        resize = crop = _side(config.size)
        if config.do_center_crop:
            crop = resize if config.crop_size is None else _side(config.crop_size)
        elif config.crop_pct and 0 < config.crop_pct <= 1 and resize < _LARGEST_WITH_MARGIN:
            resize = int(crop / config.crop_pct)
        if not 1 <= crop <= resize:
            raise InputError(f"a crop of {crop} pixels does not fit into images of {resize} pixels")
        mean, std = _scaled(config)
    except (ValidationError, InputError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else error
        raise InputError(f"{path} is not understood: {reason}") from None
    return Preparation(resize, crop, mean, std)


def _side(size: int | _Sizes) -> int:
    return size if isinstance(size, int) else size.side()


def _scaled(config: _Config) -> tuple[ChannelTriple, ChannelTriple]:
    """Return mean and standard deviation for pixels in 0..1; this package scales 0..255 to 0..1."""
    mean: ChannelTriple = (0.0, 0.0, 0.0)
    std: ChannelTriple = (1.0, 1.0, 1.0)
    if config.do_normalize is not False:
        mean, std = config.image_mean or IMAGENET_MEAN, config.image_std or IMAGENET_STD
    factor = 1.0 if config.do_rescale is False else config.rescale_factor or 1 / 255
    if not factor > 0 or not all(value > 0 for value in std):
        raise InputError("its factor and its standard deviations must be above 0")
    scale = 255 * factor
    if abs(scale - 1) < 1e-6:
        return mean, std
    (m0, m1, m2), (s0, s1, s2) = ((value / scale for value in values) for values in (mean, std))
    return (m0, m1, m2), (s0, s1, s2)
