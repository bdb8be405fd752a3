"""Tests of the description of an encoder."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter, ValidationError

from ucds.encoders.spec import LENGTHS, EncoderSpec
from ucds.errors import InputError

SPEC = EncoderSpec("resnet18", 512, 224, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
STORED = TypeAdapter(EncoderSpec)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 3},
        {"pooling": "max"},
        {"width": "512"},
        {"mean": [0.1, 0.2]},
    ],
)
def test_stored_values_of_another_kind_are_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refusal:
        STORED.validate_json(json.dumps(asdict(SPEC) | change))
    assert {found["loc"][0] for found in refusal.value.errors()} == set(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0}, "at least 1 feature"),
        ({"input_size": 0}, "1 to 1024 pixels"),
        ({"input_size": 100_000}, "1 to 1024 pixels"),
        ({"resize": 223}, "too small or too large"),
        ({"resize": 100_000}, "too small or too large"),
        ({"std": (0.5, 0.0, 0.5)}, "above 0"),
        ({"std": (0.5, float("nan"), 0.5)}, "above 0"),
    ],
)
def test_numbers_that_no_network_has_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        STORED.validate_json(json.dumps(asdict(SPEC) | change))
    with pytest.raises(InputError, match=message):
        replace(SPEC, **change)  # type: ignore[arg-type]


def test_images_are_stored_larger_than_their_crop_by_the_usual_share_or_as_the_description_says() -> None:
    assert (EncoderSpec("x", 8, 224).stored_size, EncoderSpec("x", 8, 112).stored_size) == (256, 128)
    assert EncoderSpec("x", 8, 224, resize=224).stored_size == 224
    with pytest.raises(InputError, match="does not take images"):
        _ = EncoderSpec("identity", 8).stored_size


def test_an_encoder_of_lengths_adds_a_feature() -> None:
    assert (EncoderSpec(LENGTHS, 4).takes, EncoderSpec("identity", 4).takes) == (3, 4)
    with pytest.raises(InputError, match="at least 1"):
        EncoderSpec(LENGTHS, 1)
