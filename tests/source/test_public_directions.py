"""Tests of `ucds.source.public_directions`: the last layer of an encoder."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ucds.backbones import identity_backbone, module_backbone
from ucds.source.public_directions import public_directions


def test_directions_are_those_in_which_the_last_layer_moves_the_features_most() -> None:
    layers = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 6), nn.BatchNorm1d(6))
    axes = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    with torch.no_grad():
        layers[1].weight.copy_(axes @ torch.diag(torch.tensor([1.0, 5, 3, 2, 0.5, 4])))
    found = public_directions(module_backbone(layers, 6))
    assert found is not None
    wanted = axes[:, [1, 5, 2, 3, 0, 4]].double().numpy()
    np.testing.assert_allclose(np.abs((found * wanted).sum(0)), np.ones(6), atol=1e-6)


def test_filters_count_as_weights_of_their_output() -> None:
    found = public_directions(module_backbone(nn.Sequential(nn.Conv2d(3, 300, 5), nn.Flatten()), 300))
    assert found is not None
    assert found.shape == (300, 75)  # no more than the layer has inputs
    np.testing.assert_allclose(found.T @ found, np.eye(75), atol=1e-12)


def test_an_encoder_without_such_a_layer_has_none() -> None:
    assert public_directions(identity_backbone(6)) is None
    assert public_directions(module_backbone(nn.Linear(6, 5), 6)) is None
