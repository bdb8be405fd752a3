"""Tests of networks as encoders, by their modules."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ucds.encoders.spec import EncoderSpec
from ucds.errors import InputError, UserError
from ucds.math.arrays import FloatArray
from ucds.networks.encoder import NetworkEncoder, identity_network, module_encoder

pytestmark = pytest.mark.torch


def test_module_width_is_found_and_nothing_changed() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout())
    module[2].eval()
    backbone = module_encoder(module, example=torch.randn(1, 4))
    assert backbone.spec == EncoderSpec("function", 6)
    assert backbone.module is module
    assert backbone.digest == ""  # nothing tells what a module of the caller's own computes
    assert [child.training for child in module] == [True, True, False]
    assert module[1].num_batches_tracked == 0


def test_module_width_may_be_announced_and_must_fit() -> None:
    assert module_encoder(nn.Linear(4, 6), 6).spec.width == 6
    with pytest.raises(UserError, match="returns 6 features, not 5"):
        module_encoder(nn.Linear(4, 6), 5, example=torch.randn(2, 4))
    with pytest.raises(UserError, match="give the width"):
        module_encoder(nn.Linear(4, 6))
    with pytest.raises(UserError, match="'Linear' cannot take inputs of shape 2x5"):
        module_encoder(nn.Linear(4, 6), example=torch.randn(2, 5))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([torch.zeros(2, 3)], "not list"),
        (torch.zeros(2, 3, dtype=torch.int64), "not torch.int64"),
        (torch.zeros(2, 3, 4), "one row of features per input"),
        (torch.zeros(1, 3), "one row of features per input"),
    ],
)
def test_module_must_return_rows_of_floats(output: object, message: str) -> None:
    odd = nn.Identity()
    odd.register_forward_hook(lambda *given: output)
    with pytest.raises(UserError, match=message):
        module_encoder(odd, example=torch.randn(2, 4))


@pytest.mark.parametrize(("argument", "value"), [("module", abs), ("width", "3"), ("mean", 0.5)])
def test_another_kind_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^`{argument}` must be"):
        module_encoder(**{"module": nn.Identity(), "width": 3, argument: value})


def network() -> NetworkEncoder:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(900, 5))
    return NetworkEncoder(module, EncoderSpec("small", 5, 32), "none (random)")


def images() -> FloatArray:
    return np.random.default_rng(0).normal(size=(6, 3, 32, 32)).astype(np.float32)


def test_a_network_computes_in_evaluation_mode_and_stays_as_it_was() -> None:
    encoder = network()
    encoder.module.train()
    found = encoder(images())
    assert (found.dtype, found.shape, encoder.computed_by) == (np.float32, (6, 5), "torch on cpu")
    assert encoder.module.training
    expected = encoder.module.eval()(torch.from_numpy(images())).detach().numpy()
    np.testing.assert_array_equal(found, expected)
    copy = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(copy(images()), found)
    assert copy.digest == encoder.digest != network().digest


def test_a_network_of_images_is_a_graph_with_its_features() -> None:
    encoder = network()
    graph = encoder.as_graph()
    np.testing.assert_allclose(graph(images()), encoder(images()), atol=1e-5)
    assert (graph.spec, graph.weights) == (encoder.spec, encoder.weights)
    with pytest.raises(InputError, match="cannot be written in ONNX"):
        identity_network(4).as_graph()
