"""Tests of the terms that the stages share, against the equations they are made of."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from ucds.config import PCDSettings
from ucds.gradients import objective
from ucds.gradients.objective import PrototypeTransport
from ucds.gradients.stage import Stage
from ucds.gradients.transport import solve_transport


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=generator), torch.randn(6, 4, generator=generator)


def transport(**settings: Any) -> PrototypeTransport:
    return PrototypeTransport((6,), 4, PCDSettings(**settings), torch.device("cpu"))


def test_the_settings_reach_the_solver_which_is_not_called_without_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solve = Mock(wraps=solve_transport)
    monkeypatch.setattr(objective, "solve_transport", solve)
    assert transport(transport_weight=0).loss(*batch(6)).item() == 0
    solve.assert_not_called()
    transport(epsilon=0.07, transport_tolerance=1e-4, transport_max_iterations=31).loss(*batch(6))
    assert solve.call_args.kwargs == {"epsilon": 0.07, "tolerance": 1e-4, "max_iterations": 31}


def test_plans_that_miss_their_marginals_are_told() -> None:
    told = []
    for iterations in (1, 100):
        state = transport(transport_max_iterations=iterations, transport_tolerance=1e-9)
        state.loss(*batch(6))
        told.append(state.warning)
    assert told[0] is not None
    assert re.match(r"a transport plan missed its marginals by \S+ \(transport_tolerance is 1e-09\)", told[0])
    assert told[1] is None


def test_mixing_by_hand() -> None:
    """Mix-up: predictions of mixed vectors follow the mixed, constant predictions."""
    inputs, prototypes = batch(7)
    prototypes.requires_grad_()
    replay = np.random.default_rng(5)
    ratio = float(replay.beta(0.3, 0.3))
    partner = torch.from_numpy(replay.permutation(7))
    assert 0.01 < ratio < 0.99
    forward = Mock(side_effect=lambda inputs: SimpleNamespace(logits=inputs @ prototypes))
    runtime = SimpleNamespace(pool=lambda inputs: inputs, share=slice)
    stage: Any = SimpleNamespace(settings=PCDSettings(), forward=forward, runtime=runtime)
    logits = inputs @ prototypes
    step: Any = SimpleNamespace(inputs=inputs, rng=np.random.default_rng(5))
    loss = Stage.mixing_loss(stage, step, logits)
    mixed = ratio * inputs + (1 - ratio) * inputs[partner]
    torch.testing.assert_close(forward.call_args.args[0], mixed)
    p = logits.softmax(-1).detach()
    targets = ratio * p + (1 - ratio) * p[partner]
    expected = -(targets * (mixed @ prototypes).log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(loss, expected)
    found, wanted = (torch.autograd.grad(x, prototypes, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(found, wanted)  # no gradient through the targets
    stage.settings = PCDSettings(mixing_weight=0)
    assert Stage.mixing_loss(stage, step, logits).item() == 0
    forward.assert_called_once()  # without weight there is no second forward pass
