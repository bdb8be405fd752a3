"""Tests of the encoders that need no graph."""

import pickle
from typing import Any

import numpy as np
import pytest

from ucds.encoders.encoder import Encoder, FunctionEncoder, IdentityEncoder, ViewpointEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError


def total(inputs: Any) -> Any:
    return inputs.reshape(len(inputs), -1)[:, :2]


def test_identity_returns_its_inputs() -> None:
    inputs = np.ones((3, 5), np.float32)
    encoder = IdentityEncoder(5)
    assert encoder(inputs) is inputs
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
