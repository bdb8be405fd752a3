"""Tests of the baselines' training steps: what they see, and that only the seed decides it."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from baseline_kit import session
from torch import nn

from ucds.baselines.loop import Loop
from ucds.baselines.views import PairedVectorView
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.errors import Interrupted, UcdsWarning, UserError
from ucds.training.progress import Reporter

pytestmark = pytest.mark.torch


def data(n: int = 30) -> Dataset:
    samples = VectorSamples(np.random.default_rng(0).normal(size=(n, 5)))
    return Dataset(samples, PairedVectorView(5, 0.5))


def new_loop(opened: Any, n: int = 30, rate: float = 0.1, total: int = 8) -> tuple[Loop, nn.Linear]:
    torch.manual_seed(0)
    module = nn.Linear(5, 1)
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    return Loop(opened, "some", module, optimiser, data(n), total), module


def sampler(n: int = 30) -> DomainBalancedSampler:
    return DomainBalancedSampler(np.zeros(n, dtype=np.int64), 8, 0)


def run(loop: Loop, epochs: int = 2) -> list[tuple[torch.Tensor, torch.Tensor]]:
    seen = []
    for _ in range(epochs):
        for batch in loop.epoch(sampler()):
            seen.append((batch.index, batch.inputs))
            loop.update(loss=loop.forward(batch.inputs[:, 1]).square().mean())
    return seen


def test_epochs_go_on_where_the_one_before_ended() -> None:
    loop, _ = new_loop(session())
    seen = run(loop)
    expected = [sampler().batch(step) for step in range(8)]
    np.testing.assert_array_equal([index.numpy() for index, _ in seen], expected)
    for index, inputs in seen:
        assert torch.equal(inputs[:, 0], torch.from_numpy(data().samples.read(index.numpy())))
    views = [inputs[:, 1] == 0 for _, inputs in seen]
    assert not any(torch.equal(views[0], other) for other in views[1:])  # every step drops its own
    assert loop.images_seen == 8 * 8


def test_the_seed_decides_and_the_global_generator_does_not() -> None:
    ends = []
    for seed, disturbance in ((0, 1), (0, 2), (1, 1)):
        loop, module = new_loop(session(seed=seed))
        torch.manual_seed(disturbance)
        before = torch.get_rng_state()
        run(loop)
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(module.weight.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("before", [False, True])
def test_denormal_numbers_count_as_zero_within_a_step_and_afterwards_as_before(before: bool) -> None:
    tiny, loop = torch.tensor([1e-39]), new_loop(session())[0]
    torch.set_flush_denormal(before)
    try:
        for batch in loop.epoch(sampler()):
            assert (tiny * 0.5).item() == 0
            loop.update(loss=loop.forward(batch.inputs[:, 0]).mean())
        assert ((tiny * 0.5).item() == 0) == before
    finally:
        torch.set_flush_denormal(False)


def test_progress_is_told_and_ends() -> None:
    opened = session()
    told = mock.Mock(spec=Reporter)
    opened.compute = replace(opened.compute, reporter=told)
    loop, _ = new_loop(opened, total=24)
    run(loop, epochs=6)
    with pytest.warns(UcdsWarning, match="^some: the clustering has collapsed"):
        labels = loop.finish(torch.eye(8)[[3] * 30])
    assert labels.tolist() == [3] * 30
    first, *_, last = told.mock_calls
    assert (first, last) == (
        mock.call.show("some", 0, 24),
        mock.call.show("some", 24, 24, {"loss": mock.ANY}),
    )


def test_what_is_no_longer_finite_is_refused_in_one_line() -> None:
    loop, _ = new_loop(session(), rate=1e30)
    with pytest.raises(UserError, match="^some is no longer finite at step 8 .*: lower the learning rate$"):
        run(loop)


def test_a_request_to_stop_is_heeded() -> None:
    opened = session()
    loop, _ = new_loop(opened)
    opened.stop_requested = True
    with pytest.raises(Interrupted):
        run(loop)
    assert loop.images_seen == 8  # the step at hand was finished


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(UserError, match="at least 2 samples"):
        new_loop(session(), n=1)
