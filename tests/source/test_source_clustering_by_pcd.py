"""Tests of `SourceClustering` where it learns by gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from ucds import SourceClustering
from ucds.networks.encoder import NetworkEncoder, module_encoder

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:stage .* (empty|collapsed):ucds.errors.UcdsWarning"),
]


@pytest.mark.slow
@parametrize_with_checks([SourceClustering(method="pcd", settings={"source_epochs": 10}, random_state=0)])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_keeps_scikit_learns_contract(estimator: SourceClustering, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_a_backbone_of_ones_own_is_used_left_as_it_was_and_needed_to_load_the_model(
    blobs: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    def own() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU())

    torch.manual_seed(0)
    x, module = np.concatenate(list(blobs({"a": 40, "b": 24}).values())), own()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    settings = {"source_epochs": 2, "bottleneck_width": 16, "learning_rate": 0.1}
    usual: dict[str, Any] = {"method": "pcd", "settings": settings, "random_state": 0, "accelerator": "cpu"}
    source = SourceClustering(4, backbone=module_encoder(module, 5), **usual).fit(x)
    prototypes, network = source.prototypes_, source.stored_.encoder
    assert isinstance(network, NetworkEncoder)
    assert not torch.equal(network.state()["0.weight"], before["0.weight"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    source.save(tmp_path / "run")
    empty = module_encoder(own(), 5)
    again = SourceClustering.load(tmp_path / "run", backbone=empty, accelerator="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), source.predict_proba(x))
    np.testing.assert_array_equal(source.fit(x).prototypes_, prototypes)
