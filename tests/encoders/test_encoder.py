"""Tests of the encoders that need no graph, and of the description of any encoder."""

import json
import pickle
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from ucds.encoders.encoder import Encoder, FunctionEncoder, IdentityEncoder, ViewpointEncoder
from ucds.encoders.spec import LENGTHS, EncoderSpec
from ucds.errors import InputError


def total(inputs: Any) -> Any:
    return inputs.reshape(len(inputs), -1)[:, :2]


def test_identity_returns_its_inputs() -> None:
    inputs = np.ones((3, 5), np.float32)
    encoder = IdentityEncoder(5)
    assert encoder(inputs) is inputs
    assert len(encoder.digest) == 64  # none would say that nothing tells what it computes
    assert encoder.spec == EncoderSpec("identity", 5)


def test_vectors_are_seen_as_unit_vectors_from_a_point_beside_their_plane() -> None:
    encoder = ViewpointEncoder(np.array([1.0, 2.0, -5.0]))
    seen = encoder(np.array([[1.0, 2.0], [13.0, 2.0], [1.0, 2.0 + 5.0]], np.float32))
    half = 0.5**0.5
    np.testing.assert_allclose(seen, [[0, 0, 1], [12 / 13, 0, 5 / 13], [0, half, half]], atol=1e-7)
    far = ViewpointEncoder(np.array([2.0**30, 2.0**30, -5.0]))
    np.testing.assert_allclose(
        far(np.full((1, 2), 2**30 + 128, np.float32)), [[1, 1, 5 / 128]] / np.sqrt(2 + 25 / 2**14)
    )
    assert far.digest != encoder.digest


def test_a_function_is_an_encoder_whose_width_is_found() -> None:
    encoder = FunctionEncoder(total, input_size=8)
    assert encoder.spec == EncoderSpec("function", 2, 8)
    assert encoder.digest == ""
    assert encoder(np.ones((4, 3, 8, 8), np.float32)).shape == (4, 2)
    assert FunctionEncoder(total, example=np.ones((1, 7), np.float32)).spec == EncoderSpec("function", 2)
    with pytest.raises(InputError, match="give the width"):
        FunctionEncoder(total)
    with pytest.raises(InputError, match="features \\(n, width\\)"):
        FunctionEncoder(lambda inputs: inputs, input_size=8)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros((3, 4), np.float32), "one row of features per input"),
        (np.zeros((2, 5), np.float32), "one row of features per input"),
        (np.zeros((2, 4, 1), np.float32), "one row of features per input"),
        (np.zeros((2, 4), np.int64), "floating-point"),
        (np.full((2, 4), np.nan, np.float32), "not finite"),
        (np.full((2, 4), 1e300), "not finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_no_row_of_finite_numbers_per_input_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FunctionEncoder(lambda inputs: returned, 4)(np.zeros((2, 6), np.float32))


@pytest.mark.parametrize(
    "encoder", [IdentityEncoder(3), ViewpointEncoder(np.ones(4)), FunctionEncoder(total, 2)]
)
def test_encoders_go_to_other_processes(encoder: Encoder) -> None:
    inputs, copy = np.ones((2, 3), np.float32), pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copy(inputs), encoder(inputs))
    assert (copy.spec, copy.digest, copy.describe()) == (encoder.spec, encoder.digest, encoder.describe())


SPEC = EncoderSpec("resnet18", 512, 224, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
STORED = TypeAdapter(EncoderSpec)


@pytest.mark.parametrize("change", [{"layers": 3}, {"pooling": "max"}, {"width": "512"}, {"mean": [0.1]}])
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
