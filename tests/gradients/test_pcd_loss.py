"""Tests of the composed loss: without a run, against the equations that it is made of."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ucds.config import PCDSettings
from ucds.errors import InputError
from ucds.gradients.mixing import Mixture, mix
from ucds.gradients.pcd_loss import PCDLoss, mutual_information_loss, smooth_labels, transport_loss
from ucds.gradients.transport import cosine_cost, solve_transport

pytestmark = pytest.mark.torch

N, K, WIDTH = 6, 4, 6


def batch(n: int = N) -> tuple[Tensor, Tensor, Tensor]:
    """Features, prototypes that learn, and logits."""
    generator = torch.Generator().manual_seed(0)
    features, prototypes = (
        torch.randn(n, WIDTH, generator=generator),
        torch.randn(WIDTH, K, generator=generator),
    )
    prototypes.requires_grad_()
    return features, prototypes, features @ prototypes


def loss_of(counts: tuple[int, ...] = (N,), targets: Tensor | None = None, **settings: Any) -> PCDLoss:
    return PCDLoss(counts, K, PCDSettings(**settings), targets=targets)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("counts", ()),
        ("counts", (6, 0)),
        ("counts", (2.5,)),
        ("n_clusters", 0),
        ("settings", 3),
        ("targets", torch.zeros(N, K + 1)),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^`{argument}` must be"):
        PCDLoss(**{"counts": (N,), "n_clusters": K, argument: value})


def test_a_batch_that_does_not_fit_is_refused() -> None:
    features, prototypes, logits = batch(5)
    with pytest.raises(InputError, match="`counts` add up to 6 rows, but the batch has 5"):
        loss_of()(features, prototypes, logits)
    with pytest.raises(InputError, match=r"`logits` must be \(n, 4\), not \(6, 3\)"):
        loss_of()(*batch()[:2], batch()[2][:, :3])
    with pytest.raises(InputError, match="no targets to update"):
        loss_of().update_targets(logits)
    assert PCDLoss((N,), K, {"transport_weight": 0}).transport(features, prototypes) == 0


def mixed(features: Tensor, prototypes: Tensor) -> tuple[Mixture, Tensor]:
    mixture = mix(features, 0.3, np.random.default_rng(5))
    return mixture, mixture.inputs @ prototypes


def test_each_stage_is_the_sum_of_its_terms() -> None:
    given = batch()
    targets, more = smooth_labels(torch.arange(N) % K, K, 0.1), {"index": torch.arange(N)}
    stages = {
        ("transport", "information", "mixing"): (loss_of(), {"mixed": mixed(*given[:2])}),
        ("distillation", "transport", "information"): (loss_of(targets=targets), more),
        ("transport", "information"): (loss_of(), {}),
    }
    for names, (loss, arguments) in stages.items():
        terms = loss.terms(loss.transport(*given[:2]), given[2], **arguments)
        assert tuple(terms) == names
        torch.testing.assert_close(loss(*given, **arguments), torch.stack(list(terms.values())).sum())


def test_the_settings_reach_the_solver() -> None:
    features, prototypes, _ = batch()
    how = {"epsilon": 0.07, "tolerance": 1e-4, "max_iterations": 2}
    named = {"transport_tolerance": 1e-4, "transport_max_iterations": 2, "epsilon": 0.07}
    cost = cosine_cost(features, prototypes)[None]
    plan = solve_transport(cost, torch.full((1, N), 1 / N), torch.full((1, K), 1 / K), **how).plan  # type: ignore[arg-type]
    found = loss_of(**named).transport(features, prototypes)
    assert found.item() == transport_loss(cost, plan).item()
    assert loss_of().transport(features, prototypes).item() != found.item()


def test_without_weight_nothing_is_transported() -> None:
    features, prototypes, logits = batch()
    unsolvable = torch.full_like(features, torch.nan)
    found = loss_of(transport_weight=0)(unsolvable, prototypes, logits)
    assert found.item() == mutual_information_loss(logits).item()


def test_its_state_is_all_that_a_resumed_run_needs() -> None:
    targets, (features, prototypes, logits) = torch.full((N, K), 1 / K), batch()
    one, other = (loss_of(targets=targets.clone()) for _ in range(2))
    one.update_proportions(logits, 0.9)
    one.update_targets(logits.detach().softmax(1))
    other.load_state_dict(one.state_dict())
    index = torch.arange(N)
    found = [loss(features, prototypes, logits, index=index).item() for loss in (one, other)]
    assert found[0] == found[1]


def test_plans_that_miss_their_marginals_are_told() -> None:
    told = []
    for iterations in (1, 100):
        loss = loss_of(transport_max_iterations=iterations, transport_tolerance=1e-9)
        loss(*batch())
        told.append(loss.warning)
    assert told[0] is not None
    assert re.match(r"a transport plan missed its marginals by \S+ \(transport_tolerance is 1e-09\)", told[0])
    assert told[1] is None


def test_mixing_by_hand() -> None:
    """Mix-up: predictions of mixed vectors follow the mixed, constant predictions."""
    inputs, prototypes, logits = batch()
    replay = np.random.default_rng(5)
    ratio = float(replay.beta(0.3, 0.3))
    partner = torch.from_numpy(replay.permutation(N))
    assert 0.01 < ratio < 0.99
    both = mixed(inputs, prototypes)
    torch.testing.assert_close(both[0].inputs, ratio * inputs + (1 - ratio) * inputs[partner])
    loss = loss_of(mixing_weight=2).terms(torch.zeros(()), logits, mixed=both)["mixing"]
    p = logits.softmax(-1).detach()
    targets = ratio * p + (1 - ratio) * p[partner]
    expected = -2 * (targets * both[1].log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(loss, expected)
    found, wanted = (torch.autograd.grad(x, prototypes, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(found, wanted)  # no gradient through the targets
