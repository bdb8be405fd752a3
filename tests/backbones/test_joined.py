"""Tests of several backbones as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import interpolate, normalize

from ucds import InputError
from ucds.backbones import build_backbone, rebuild_backbone
from ucds.backbones.joined import JoinedEncoders, sizes_of
from ucds.backbones.spec import Network

EDGES, SMALL = "ucds/oriented_edges", "test_resnet"
BOTH = f"{EDGES},{SMALL}"


class Seen(nn.Module):
    """Returns the images that it is given, as features."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


def network(size: int, mean: float, std: float) -> Network:
    return Network(Seen(), size, (mean, 0.1, 0.2), (std, 0.5, 1.0), "none")


def images(size: int) -> torch.Tensor:
    return torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_each_encoder_sees_its_own_normalisation_and_size() -> None:
    first, second = network(8, 0.5, 0.25), network(4, 0.3, 2.0)
    pixels = images(8)

    def normalised(one: Network, at: torch.Tensor) -> torch.Tensor:
        return (at - torch.tensor(one.mean).view(3, 1, 1)) / torch.tensor(one.std).view(3, 1, 1)

    found = JoinedEncoders([first, second])(normalised(first, pixels))
    torch.testing.assert_close(found[:, :192], normalize(normalised(first, pixels).flatten(1)))
    small = interpolate(pixels, (4, 4), mode="bilinear", antialias=True)
    torch.testing.assert_close(found[:, 192:], normalize(normalised(second, small).flatten(1)))


def test_joined_encoders_are_described_as_one() -> None:
    joined = build_backbone(f"{EDGES}, {SMALL}", weights="none")
    parts = [build_backbone(name, weights="none") for name in (EDGES, SMALL)]
    assert joined.spec == replace(
        parts[0].spec, name=BOTH, width=128 + 96, input_size=parts[1].spec.input_size
    )
    assert joined.parts == (128, 96)
    assert joined.weights == "none (fixed filters); none (random)"
    assert parts[0].parts == ()
    features = joined.module.eval()(images(parts[1].spec.input_size or 0))
    norms = [block.norm(dim=1) for block in features.split(joined.parts, 1)]
    torch.testing.assert_close(torch.stack(norms), torch.ones(2, 3))


def test_an_encoder_computes_the_same_alone_and_as_the_first_of_two() -> None:
    alone = build_backbone(SMALL, weights="none", input_size=32)
    joined = build_backbone(f"{SMALL},{EDGES}", weights="none", input_size=32)
    pixels = images(32)
    expected = normalize(alone.module.eval()(pixels))
    assert torch.equal(joined.module.eval()(pixels)[:, :96], expected)


@pytest.mark.parametrize("size", [None, 24, 64, 200])
def test_the_description_rebuilds_joined_encoders(size: int | None) -> None:
    joined = build_backbone(BOTH, weights="none", input_size=size)
    rebuilt = rebuild_backbone(joined.spec, seed=1)
    rebuilt.module.load_state_dict(joined.module.state_dict())
    assert rebuilt.spec == joined.spec
    assert rebuilt.parts == joined.parts
    pixels = images(joined.spec.input_size or 0)
    assert torch.equal(rebuilt.module.eval()(pixels), joined.module.eval()(pixels))


def test_sizes_follow_from_the_largest() -> None:
    assert sizes_of([224, 32], None) == [224, 32]
    assert sizes_of([224, 32], 224) == [224, 32]
    assert sizes_of([224, 224, 128], 448) == [448, 448, 128]
    assert sizes_of([224, 224, 128], 96) == [96, 96, 96]


def test_each_encoder_has_its_own_weights(tmp_path: Path) -> None:
    trained = build_backbone(SMALL, weights="none", seed=3).module
    file = tmp_path / "small.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in trained.state_dict().items()}, file)
    joined = build_backbone(BOTH, weights=f"none,{file}")
    assert joined.weights.startswith("none (fixed filters); file: small.safetensors (sha256 ")
    loaded = joined.module.get_submodule("encoders.1").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in trained.state_dict().items())


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        (f"{SMALL},{SMALL}", "none", "twice"),
        (f"{SMALL},", "none", "a comma without a name"),
        (f"{SMALL},,{EDGES}", "none", "a comma without a name"),
        (f"{EDGES},test_resnt", "none", "no backbone is named 'test_resnt'"),
        (f"{EDGES},identity", "none", "'identity' is no name"),
        (BOTH, "one.safetensors", "1 and --backbone 2 entries"),
        (BOTH, "none,none,none", "3 and --backbone 2 entries"),
        (BOTH, "none,missing.safetensors", "no weights file missing.safetensors"),
    ],
)
def test_what_cannot_be_joined_is_told(name: str, weights: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_backbone(name, weights=weights)


def test_a_changed_width_of_one_encoder_is_refused() -> None:
    joined = build_backbone(BOTH, weights="none")
    with pytest.raises(InputError, match="returns 224 features here, but 225"):
        rebuild_backbone(replace(joined.spec, width=225))
