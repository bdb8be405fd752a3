"""Tests of the steps of a training loop: batches, updates, and the reading of losses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ucds.config import ModelSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.vectors import VectorSamples
from ucds.data.views import VectorView
from ucds.errors import InputError
from ucds.training.run_folder import RunFolder
from ucds.training.runtime import Runtime
from ucds.training.session import Session
from ucds.training.steps import LOG_STEPS, Batch, Steps

DATA = Dataset(VectorSamples(np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)), VectorView())
SAMPLER = DomainBalancedSampler(DATA.samples.domain, 8, 0)


def made(total: int = 50, seed: int = 0, name: str = "loop", folder: RunFolder | None = None) -> Steps:
    network = nn.Linear(3, 1)
    nn.init.zeros_(network.weight)
    session = Session(Runtime(accelerator="cpu", seed=seed, folder=folder), ModelSettings())
    return Steps(session, name, network, torch.optim.SGD(network.parameters(), lr=0.1), DATA, total)


def drawn(step: int, seed: int = 0, name: str = "loop") -> Batch:
    with made(seed=seed, name=name).open(SAMPLER, 50) as draw:
        return draw(step)


def test_a_batch_holds_the_samples_at_its_positions() -> None:
    batch = drawn(3)
    np.testing.assert_array_equal(batch.index, SAMPLER.batch(3))
    assert torch.equal(batch.inputs, DATA.samples.read(batch.index.numpy()))


def test_the_choices_of_a_step_are_a_function_of_seed_name_and_step() -> None:
    draws = [drawn(*which).rng.random() for which in ((3,), (3,), (4,), (3, 1), (3, 0, "other"))]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4


def test_stochastic_layers_do_not_depend_on_what_was_drawn_before() -> None:
    noise = []
    for unrelated in (0, 5):
        with made().open(SAMPLER, 50) as draw:
            torch.rand(unrelated)
            draw(2)
            noise.append(torch.rand(4))
    assert torch.equal(*noise)


def test_the_global_generator_is_as_it_was_afterwards() -> None:
    steps, before = made(), torch.get_rng_state()
    with steps.open(SAMPLER, 50) as draw:
        draw(1)
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_update_descends_the_sum_of_the_terms() -> None:
    steps = made()
    inputs = torch.ones(4, 3)
    output = steps.module(inputs).mean()
    steps.update(one=output, two=2 * output)
    torch.testing.assert_close(steps.module.weight.detach(), torch.full((1, 3), -0.3))
    steps.update(one=steps.module(inputs).mean())  # gradients do not add up over steps
    torch.testing.assert_close(steps.module.weight.detach(), torch.full((1, 3), -0.4))


def test_losses_are_read_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    steps = made(total=LOG_STEPS + 3, folder=folder)
    steps.update(fit=steps.module(torch.ones(1, 3)).sum() * 0 + 1.5)
    read = [step for step in range(1, LOG_STEPS + 4) if steps.read_losses(step) is not None]
    assert read == [LOG_STEPS, LOG_STEPS + 3]
    assert steps.read_losses(LOG_STEPS) == {"fit": 1.5}


def test_losses_are_logged(tmp_path: Path) -> None:
    session = Session(Runtime(accelerator="cpu", folder=RunFolder(tmp_path)), ModelSettings())
    network = nn.Linear(3, 1)
    steps = Steps(session, "loop", network, torch.optim.SGD(network.parameters(), lr=0.1), DATA, 9)
    steps.update(fit=steps.module(torch.ones(1, 3)).sum() * 0 + 1.5)
    steps.read_losses(9)
    session.close()
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(line) == {"stage": "loop", "step": 9, "kind": "losses", "fit": 1.5}


def test_a_loss_that_is_not_finite_ends_the_run_in_words() -> None:
    steps = made(total=1)
    steps.update(fit=steps.module(torch.ones(1, 3)).sum() * math.nan)
    with pytest.raises(InputError, match=r"^loop is no longer finite at step 1 .*: lower the learning rate$"):
        steps.read_losses(1)
