"""Tests of batch normalisation by domain, and of the statistics of a new one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

from ucds.baselines.domain_norm import DomainNorm, estimate_statistics, merge_norms, split_norms
from ucds.data.dataset import Dataset, VectorView
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.training.options import Compute
from ucds.training.runtime import Runtime

COUNTS = (6, 10)


def batch(*shape: int) -> torch.Tensor:
    values = torch.randn(16, *shape, generator=torch.Generator().manual_seed(0))
    values[:6] = 5 * values[:6] + 3
    return values


def network() -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    )
    nn.init.normal_(made[1].weight)
    nn.init.normal_(made[1].bias)
    return made


def test_each_domain_has_a_normalisation_of_its_own() -> None:
    together, alone = network(), [network(), network()]
    split_norms(together, COUNTS)
    inputs = batch(4)
    expected = torch.cat([own(part) for own, part in zip(alone, torch.split(inputs, COUNTS), strict=True)])
    torch.testing.assert_close(together(inputs), expected)
    assert isinstance(together[1], DomainNorm)
    for norm, own in zip(together[1].norms, alone, strict=True):
        torch.testing.assert_close(norm.running_mean, own[1].running_mean)


def test_scale_and_shift_are_shared_and_no_parameter_is_added() -> None:
    split = network()
    split_norms(split, COUNTS)
    assert sum(w.numel() for w in split.parameters()) == sum(w.numel() for w in network().parameters())
    split(batch(4)).square().sum().backward()
    first, second = split[1].norms
    assert first.weight is second.weight
    assert first.bias is second.bias
    assert first.weight.grad is not None


def test_layers_that_do_more_than_normalise_keep_doing_it() -> None:
    layer = BatchNormAct2d(3)
    expected = torch.cat([copy.deepcopy(layer)(part) for part in torch.split(batch(3, 4, 4), COUNTS)])
    split = nn.Sequential(layer)
    split_norms(split, COUNTS)
    torch.testing.assert_close(split(batch(3, 4, 4)), expected)
    assert expected.min() == 0  # its rectifier


def test_merging_undoes_splitting() -> None:
    original, changed = network(), network()
    split_norms(changed, COUNTS)
    merge_norms(changed)
    assert changed.state_dict().keys() == original.state_dict().keys()
    torch.testing.assert_close(changed(batch(4)), original(batch(4)))


@pytest.mark.parametrize(
    ("module", "counts", "words"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (4, 4), "has none of"),
        (network(), (5, 1), "2 samples of each domain in a batch; enlarge it"),
    ],
)
def test_what_cannot_be_split_is_refused(module: nn.Module, counts: tuple[int, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        split_norms(module, counts)


def test_estimated_statistics_are_those_of_the_data() -> None:
    rng = np.random.default_rng(0)
    data = Dataset(VectorSamples(rng.normal(2, 3, size=(40, 4))), VectorView())
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(norm)
    module(torch.randn(30, 4))  # leaves statistics behind
    estimate_statistics(module, data, Runtime(Compute("cpu", cache=None)), 64, rng)
    values = data.samples.read(np.arange(40))
    torch.testing.assert_close(norm.running_mean, values.mean(0))
    torch.testing.assert_close(norm.running_var, values.var(0))
    assert norm.momentum == 0.1


def test_statistics_of_several_batches_are_their_mean() -> None:
    rows = np.array([[0.0], [2.0], [4.0], [6.0], [10.0]], dtype=np.float32)
    data, norm = Dataset(VectorSamples(rows), VectorView()), nn.BatchNorm1d(1)
    order = np.random.default_rng(3).permutation(5)
    estimate_statistics(
        nn.Sequential(norm), data, Runtime(Compute("cpu", cache=None)), 2, np.random.default_rng(3)
    )
    parts = [rows[order[:3]], rows[order[3:]]]  # no batch of one
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.running_mean.item() == pytest.approx(np.mean([p.mean() for p in parts]), rel=1e-6)
    assert norm.running_var.item() == pytest.approx(np.mean([p.var(ddof=1) for p in parts]), rel=1e-6)
