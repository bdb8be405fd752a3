"""Tests of the steps of a training loop: seeds, batches read ahead, optimiser, updates, losses."""

import json
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ucds.config import ModelSettings, PCDSettings
from ucds.data.batches import DomainBalancedSampler
from ucds.data.dataset import Dataset
from ucds.data.samples import Samples
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError
from ucds.gradients.prepare import torch_generator
from ucds.gradients.runtime import Runtime
from ucds.gradients.session import Session
from ucds.gradients.steps import LOG_STEPS, Batch, Steps, build_optimiser, set_learning_rate
from ucds.math.arrays import IntArray
from ucds.networks.encoder import identity_network, module_encoder
from ucds.networks.model import ClusteringModel
from ucds.training.options import Compute
from ucds.training.run_folder import RunFolder
from ucds.training.seeds import derive, numpy_generator

pytestmark = pytest.mark.torch

DATA = Dataset(VectorSamples(np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)))
SAMPLER = DomainBalancedSampler(DATA.samples.domain, 8, 0)


def made(total: int = 50, seed: int = 0, name: str = "loop", data: Dataset = DATA) -> Steps:
    network = nn.Linear(3, 1)
    nn.init.zeros_(network.weight)
    session = Session(ModelSettings(), Compute("cpu", cache=None), seed=seed)
    return Steps(session, name, network, torch.optim.SGD(network.parameters(), lr=0.1), data, total)


def drawn(step: int, seed: int = 0, name: str = "loop") -> Batch:
    return next(made(seed=seed, name=name).batches(SAMPLER, step, 50))


def test_the_words_are_their_checksums() -> None:
    """A change here changes every result: 0x352441c2 is the CRC-32 of "abc"."""
    expected = np.random.SeedSequence([7, 0x352441C2, 5])
    np.testing.assert_array_equal(derive(7, "abc", 5).generate_state(2), expected.generate_state(2))
    assert numpy_generator(7, "abc", 5).random() == np.random.default_rng(expected).random()
    assert torch_generator(expected).initial_seed() == int(expected.generate_state(1)[0])


def test_the_choices_of_a_step_are_a_function_of_seed_name_and_step() -> None:
    draws = [drawn(*which).rng.random() for which in ((3,), (3,), (4,), (3, 1), (3, 0, "other"))]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4


def test_stochastic_layers_do_not_depend_on_what_was_drawn_before_nor_change_what_is_drawn_after() -> None:
    noise = []
    for unrelated in (0, 5):
        torch.rand(unrelated)
        steps, before = made(), torch.get_rng_state()
        with closing(steps.batches(SAMPLER, 2, 50)) as batches:
            next(batches)
            noise.append(torch.rand(4))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*noise)


def test_an_update_descends_the_sum_of_the_terms() -> None:
    steps = made()
    inputs = torch.ones(4, 3)
    output = steps.module(inputs).mean()
    steps.update(one=output, two=2 * output)
    torch.testing.assert_close(steps.module.weight.detach(), torch.full((1, 3), -0.3))
    steps.update(one=steps.module(inputs).mean())  # gradients do not add up over steps
    torch.testing.assert_close(steps.module.weight.detach(), torch.full((1, 3), -0.4))


def test_losses_are_read_and_logged_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    session = Session(ModelSettings(), Compute("cpu", cache=None), folder=RunFolder(tmp_path))
    session.open({}, resume=False)
    network, total = nn.Linear(3, 1), LOG_STEPS + 3
    steps = Steps(session, "loop", network, torch.optim.SGD(network.parameters(), lr=0.1), DATA, total)
    steps.update(fit=steps.module(torch.ones(1, 3)).sum() * 0 + 1.5)
    read = {step: losses for step in range(1, total + 1) if (losses := steps.read_losses(step))}
    assert read == {LOG_STEPS: {"fit": 1.5}, total: {"fit": 1.5}}
    session.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == [{"stage": "loop", "step": step, "kind": "losses", "fit": 1.5} for step in read]


RATES = PCDSettings(learning_rate=0.002, new_layer_learning_rate=0.03)


def model() -> ClusteringModel:
    return ClusteringModel(module_encoder(nn.Linear(5, 4), 4), 3, bottleneck_width=6)


def rates(optimiser: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimiser.param_groups]


def test_pretrained_and_new_layers_have_rates_of_their_own() -> None:
    net = model()
    optimiser = build_optimiser(net, RATES)
    backbone, new = optimiser.param_groups
    assert rates(optimiser) == [0.002, 0.03]
    assert {id(p) for p in backbone["params"]} == {id(p) for p in net.encoder.backbone.parameters()}
    others = [*net.encoder.bottleneck.parameters(), net.prototypes]
    assert {id(p) for p in new["params"]} == {id(p) for p in others}


def test_without_a_trainable_backbone_there_is_one_group() -> None:
    frozen = model()
    frozen.encoder.backbone.requires_grad_(False)
    for net in (frozen, ClusteringModel(identity_network(4), 3)):
        optimiser = build_optimiser(net, RATES)
        assert rates(optimiser) == [0.03]
        assert sum(len(group["params"]) for group in optimiser.param_groups) == 5


def test_the_schedule_follows_its_settings() -> None:
    fast = PCDSettings(learning_rate=1.0, new_layer_learning_rate=2.0, decay_rate=3.0, decay_power=2.0)
    optimiser = build_optimiser(model(), fast)
    set_learning_rate(optimiser, 1 / 3, fast)
    assert rates(optimiser) == pytest.approx([0.25, 0.5], rel=1e-12)
    set_learning_rate(optimiser, 0.9, PCDSettings(decay_power=0))
    assert rates(optimiser) == [1.0, 2.0]


def test_without_momentum_there_is_no_nesterov() -> None:
    for settings in (PCDSettings(nesterov=False, weight_decay=0), PCDSettings(momentum=0, weight_decay=0)):
        for group in build_optimiser(model(), settings).param_groups:
            assert (group["nesterov"], group["weight_decay"]) == (False, 0)


def test_three_steps_by_hand_with_the_schedule_of_the_paper() -> None:
    """Nesterov: g' = g + wd w;  v = m v + g';  w = w - eta (g' + m v)."""
    config = PCDSettings(new_layer_learning_rate=0.1, momentum=0.5, weight_decay=0.01)
    net = ClusteringModel(identity_network(4), 3)
    optimiser = build_optimiser(net, config)
    weight, velocity = net.prototypes.detach().double().clone(), 0.0
    for progress, slope in ((0.0, 2.0), (0.5, -1.0), (1.0, 3.0)):
        optimiser.zero_grad()
        (slope * net.prototypes).sum().backward()
        set_learning_rate(optimiser, progress, config)
        optimiser.step()
        gradient = slope + 0.01 * weight
        velocity = 0.5 * velocity + gradient
        weight = weight - 0.1 * (1 + 10 * progress) ** -0.75 * (gradient + 0.5 * velocity)
    torch.testing.assert_close(net.prototypes.detach().double(), weight, rtol=1e-6, atol=1e-6)


DOMAIN = np.repeat([0, 1], [7, 5])
IMAGES = torch.arange(12 * 3 * 4, dtype=torch.uint8).view(12, 3, 2, 2)


class Watched(Samples):
    """Samples that note which thread reads how many of them, and can be made to fail."""

    def __init__(self, values: Tensor = IMAGES) -> None:
        super().__init__([], DOMAIN, ("a", "b"))
        self.kind = "images" if values.ndim > 2 else "embeddings"
        self.values = values
        self.log: list[tuple[str, int]] = []

    def read(self, index: IntArray) -> NDArray[Any]:
        main = threading.current_thread() is threading.main_thread()
        self.log.append(("now" if main else "ahead", len(index)))
        return self.values.numpy()[index]


def batches(samples: Samples, end: int, start: int = 0) -> Generator[Batch]:
    return made(data=Dataset(samples)).batches(DomainBalancedSampler(DOMAIN, 6, 3), start, end)


@pytest.mark.parametrize("values", [IMAGES, IMAGES.flatten(1)])
@pytest.mark.parametrize("share", [slice(0, 6), slice(0, 3), slice(3, 6)])
def test_gives_the_samplers_batches_and_this_processs_rows(
    share: slice, values: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runtime, "share", lambda runtime, n: share)
    fresh = DomainBalancedSampler(DOMAIN, 6, 3)
    for step, batch in zip(range(2, 9), batches(Watched(values), 9, start=2), strict=True):
        np.testing.assert_array_equal(batch.index, fresh.batch(step))
        assert torch.equal(batch.inputs, values[batch.index[share]].float())


def test_images_are_read_one_step_ahead_and_vectors_when_they_are_wanted() -> None:
    images, vectors = Watched(), Watched(IMAGES.flatten(1))
    with closing(batches(images, 4)) as reading:
        next(reading)
        deadline = time.monotonic() + 10
        while len(images.log) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert images.log == [("ahead", 6)] * 2
        assert len(list(reading)) == 3
    assert images.log == [("ahead", 6)] * 4
    with closing(batches(vectors, 4)) as reading:
        next(reading)
    assert vectors.log == [("now", 6)]


def test_an_error_in_the_thread_is_raised_at_its_step() -> None:
    class LastFails(Watched):
        def read(self, index: IntArray) -> NDArray[Any]:
            if len(self.log) == 2:
                raise UserError("the disk is gone")
            return super().read(index)

    reading = batches(LastFails(), 3)
    next(reading)
    next(reading)
    with pytest.raises(UserError, match="the disk is gone"):
        next(reading)


def test_leaving_early_stops_the_thread() -> None:
    before = threading.active_count()
    with closing(batches(Watched(), 100)) as reading:
        next(reading)
    assert threading.active_count() == before
