"""Tests of frozen features: computed once, shared, and the same wherever they are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ucds.data.dataset import Dataset
from ucds.data.samples import subset
from ucds.data.vectors import VectorSamples
from ucds.encoders.spec import EncoderSpec
from ucds.gradients.runtime import Runtime
from ucds.networks.spec import Backbone, module_backbone
from ucds.training.features import frozen_features
from ucds.training.options import Compute


class Counting(nn.Module):
    """A linear network with batch normalisation that counts its inputs and fails when told."""

    def __init__(self, seed: int = 0, fail_after: int = 10**9) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.seen = 0
        self.fail_after = fail_after

    def forward(self, inputs: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        if self.seen + len(inputs) > self.fail_after:
            raise KeyboardInterrupt
        self.seen += len(inputs)
        features: Tensor = self.layers(inputs)
        return features


def named(module: nn.Module, name: str = "counting") -> Backbone:
    return Backbone(module.train(), EncoderSpec(name, 3), "given")


def data(n: int = 50, seed: int = 0) -> Dataset:
    array = np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)
    domain = (np.arange(n) % 2).astype(np.int64)
    return Dataset(VectorSamples(array, domain, ("a", "b")))


def values(result: Dataset) -> Tensor:
    return torch.from_numpy(result.samples.read(np.arange(len(result.samples))))


def extract(backbone: Backbone, inputs: Dataset, cache: Path | None, batch_size: int = 16) -> Dataset:
    return frozen_features(backbone, inputs, Runtime(Compute("cpu", cache=cache)), batch_size=batch_size)


@pytest.mark.parametrize("batch_size", [1, 16, 49, 50, 1000])
@pytest.mark.parametrize("stored", [True, False])
def test_features_are_the_backbones_in_evaluation_mode(stored: bool, batch_size: int, tmp_path: Path) -> None:
    module, inputs = Counting(), data()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    found = extract(named(module), inputs, tmp_path if stored else None, batch_size)
    assert module.training  # as it was
    assert torch.is_grad_enabled()
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert found.samples.ids == inputs.samples.ids
    assert found.samples.domain_names == ("a", "b")
    np.testing.assert_array_equal(found.samples.domain, inputs.samples.domain)
    array = values(inputs)
    with torch.no_grad():
        torch.testing.assert_close(values(found), module.eval().layers(array), rtol=0, atol=1e-6)
    assert values(found).dtype == torch.float32


def test_other_splits_orders_and_names_share_features(tmp_path: Path) -> None:
    whole = extract(named(Counting()), data(), tmp_path)
    inputs = data()
    chosen = np.array([7, 3, 30, 4])
    array = values(inputs).numpy()[chosen]
    renamed = VectorSamples(array, ids=("w", "x", "y", "z"))
    everything = np.arange(50)
    cases = ((inputs.samples, everything), (subset(inputs.samples, chosen), chosen), (renamed, chosen))
    for samples, rows in cases:
        module = Counting()
        found = extract(named(module), Dataset(samples), tmp_path)
        assert module.seen == 0
        assert torch.equal(values(found), values(whole)[rows])


def test_only_new_contents_are_computed_each_once(tmp_path: Path) -> None:
    extract(named(Counting()), data(50), tmp_path)
    old = values(data(50)).numpy()[:5]
    new = values(data(8, seed=9)).numpy()
    mixed = VectorSamples(np.concatenate([old, new, new, old]))
    module = Counting()
    found = extract(named(module), Dataset(mixed), tmp_path)
    assert module.seen == 8
    assert torch.equal(values(found)[5:13], values(found)[13:21])
    assert torch.equal(values(found)[:5], values(found)[21:])


def test_other_weights_and_other_architectures_have_features_of_their_own(tmp_path: Path) -> None:
    first = extract(named(Counting(0)), data(), tmp_path)
    others = [named(Counting(1)), named(Counting(0), "another name")]
    for backbone in others:
        found = extract(backbone, data(), tmp_path)
        assert backbone.module.seen == 50
        assert found.samples.fingerprint != first.samples.fingerprint
    again = extract(named(Counting(0)), data(), tmp_path)
    assert torch.equal(values(again), values(first))
    assert again.samples.fingerprint == first.samples.fingerprint


def test_an_interrupted_computation_goes_on(tmp_path: Path) -> None:
    interrupted = Counting(fail_after=32)
    with pytest.raises(KeyboardInterrupt):
        extract(named(interrupted), data(), tmp_path)
    assert interrupted.seen == 32
    assert interrupted.training
    assert torch.is_grad_enabled()
    rest = Counting()
    found = extract(named(rest), data(), tmp_path)
    assert rest.seen == 50 - 32
    assert torch.equal(values(found), values(extract(named(Counting()), data(), None)))


def test_modules_of_ones_own_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """Two modules without weights have the same description, but not the same features."""
    for module in (nn.ReLU(), nn.Tanh()):
        found = values(extract(module_backbone(module, 4), data(), tmp_path))
        torch.testing.assert_close(found, module(values(data())))
