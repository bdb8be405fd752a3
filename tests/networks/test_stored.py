"""Tests of networks that model files hold, and of their number of parameters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from memory_kit import check
from safetensors.torch import save
from torch import nn

from ucds.encoders.encoder import IdentityEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.errors import DamagedFileError, InputError
from ucds.networks.build import build_network
from ucds.networks.encoder import NetworkEncoder, module_encoder
from ucds.networks.stored import count_parameters, stored_network
from ucds.training.model_file import load_model, save_model

pytestmark = pytest.mark.torch

SMALL, FILE = "test_resnet", Path("run/model.safetensors")


def content_of(network: NetworkEncoder) -> bytes:
    return network.saved()["network"].tobytes()


def stored(network: NetworkEncoder, **changes: Any) -> Any:
    given = {"spec": network.spec, "content": content_of(network), "given": None} | changes
    return stored_network(given["spec"], "hub: x", given["content"], FILE, given["given"])


@pytest.mark.parametrize("name", ["test_vit", "torchvision/squeezenet1_1"])
def test_a_model_file_keeps_a_network(name: str, stored_model: Any, tmp_path: Path) -> None:
    network = build_network(name, weights="none", input_size=64, seed=3)
    save_model(tmp_path, stored_model(network, 4, 8, tune="full"))
    found = load_model(tmp_path).encoder  # a network is rebuilt from its name
    assert (found.spec, found.weights, found.digest) == (network.spec, network.weights, network.digest)
    images = np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    np.testing.assert_array_equal(found(images), network(images))
    assert content_of(found) == content_of(network)


def test_a_network_that_does_not_fit_its_description_is_refused() -> None:
    network = build_network(SMALL, weights="none", input_size=64)
    with pytest.raises(InputError, match="returns 96 features here, but 99"):
        stored(network, spec=EncoderSpec(SMALL, 99, 64))
    with pytest.raises(DamagedFileError, match=r"model\.safetensors does not fit its own description"):
        stored(network, spec=EncoderSpec("test_vit", 64, 64))
    with pytest.raises(DamagedFileError, match=r"model\.safetensors does not fit its own description"):
        stored(network, content=b"no weights")


def test_a_network_is_not_built_for_weights_that_are_not_there() -> None:
    giant, content = EncoderSpec("vit_large_patch16_224", 1024, 224), save({"w": torch.zeros(1)})
    check(lambda: stored_network(giant, "none", content, FILE, None), "does not fit its own description")


def test_a_module_of_the_callers_own_is_to_be_given() -> None:
    own, other = (module_encoder(nn.Linear(3, 2), 2) for _ in range(2))
    with pytest.raises(InputError, match=r"make it again, and pass module_encoder\(\.\.\.\)"):
        stored(own)
    found = stored(own, given=other)
    assert torch.equal(found.module.weight, own.module.weight)
    with pytest.raises(DamagedFileError, match="does not fit its own description"):
        stored(own, given=module_encoder(nn.Linear(4, 2), 2))


def test_parameters_are_counted_in_the_network_that_a_graph_was_made_of() -> None:
    network = build_network(SMALL, weights="none", input_size=64)
    number = sum(weight.numel() for weight in network.module.parameters())
    assert count_parameters(network) == count_parameters(network.as_graph()) == number > 0
    assert count_parameters(IdentityEncoder(5)) == 0
