"""Tests of the semi-relaxed transport, and of the clustering and matching of whole domains."""

from __future__ import annotations

import math

import numpy as np
import ot as pot
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from ucds.math.arrays import FloatArray
from ucds.math.consensus import USUAL, match
from ucds.math.domain_transport import DomainClusters, cluster_domains, match_domains
from ucds.math.spaces import unit_rows
from ucds.math.transport import TransportPlan, semi_relaxed_transport

N, K = 50, 4
EPSILON = 0.05
B = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)


def cost(seed: int = 0) -> Tensor:
    return 2 * torch.rand(N, K, generator=torch.Generator().manual_seed(seed))


def solve(relaxation: float, **more: object) -> TransportPlan:
    settings = {"epsilon": EPSILON, "tolerance": 1e-10, "max_iterations": 20_000} | more
    return semi_relaxed_transport(cost(), B, relaxation=relaxation, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("relaxation", [0.0, 0.01, 0.1, 1.0, math.inf])
def test_every_sample_gives_all_of_its_weight(relaxation: float) -> None:
    for iterations in (1, 20_000):
        plan = solve(relaxation, max_iterations=iterations).plan
        assert (plan >= 0).all()
        torch.testing.assert_close(
            plan.sum(1), torch.full((N,), 1 / N, dtype=torch.float64), atol=1e-15, rtol=0
        )


def test_an_infinite_price_is_the_balanced_transport() -> None:
    rows = torch.full((N,), 1 / N, dtype=torch.float64)
    balanced = pot.sinkhorn(rows, B, cost().double(), EPSILON, "sinkhorn_log", numItermax=50_000)
    found = solve(math.inf)
    assert found.converged
    torch.testing.assert_close(found.plan, balanced, atol=1e-8, rtol=0)
    torch.testing.assert_close(found.plan.sum(0), B, atol=1e-9, rtol=0)
    torch.testing.assert_close(solve(1e7).plan, found.plan, atol=1e-6, rtol=0)


def test_without_a_price_every_row_is_its_own_softmax() -> None:
    alone = (-cost().double() / EPSILON).softmax(1) / N
    torch.testing.assert_close(solve(0.0).plan, alone, atol=1e-15, rtol=1e-12)
    torch.testing.assert_close(solve(1e-9).plan, alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("relaxation", [0.01, 0.1, 1.0])
def test_the_plan_is_stationary(relaxation: float) -> None:
    """The derivative along an entry, less a constant a row: C + epsilon log T + relaxation log(T'1 / b)."""
    found = solve(relaxation)
    plan = found.plan
    gradient = cost().double() + EPSILON * plan.log() + relaxation * (plan.sum(0) / B).log()
    assert float((gradient - gradient.mean(1, keepdim=True)).abs().max()) < 1e-6
    assert found.converged
    assert found.marginal_error < 1e-8


def test_a_warm_start_ends_at_the_same_plan_sooner() -> None:
    cold = solve(0.1)
    starts = (cold.potential, torch.tensor([3.0, -3.0, 1.0, 0.0]))
    warm, far = (solve(0.1, initial_potential=potential) for potential in starts)
    assert warm.iterations <= 2 < cold.iterations
    for found in (warm, far):
        torch.testing.assert_close(found.plan, cold.plan, atol=1e-9, rtol=0)


def test_it_says_when_it_is_not_there_yet() -> None:
    found = solve(0.1, max_iterations=2)
    assert (found.iterations, bool(found.converged)) == (2, False)
    assert found.marginal_error > 1e-6


def shifted(sizes: list[list[int]]) -> tuple[list[FloatArray], list[np.ndarray]]:
    """Domains of blobs of given sizes; between two domains lies more than between two blobs."""
    rng = np.random.default_rng(0)
    centres, shifts = np.eye(8)[:K], 5 * np.eye(8)[K:]
    domains, truths = [], []
    for d, counts in enumerate(sizes):
        truth = rng.permutation(np.repeat(np.arange(len(counts)), counts))
        noise = 0.05 * rng.normal(size=(len(truth), 8))
        domains.append((centres[truth] + shifts[d] + noise).astype(np.float32))
        truths.append(truth)
    return domains, truths


def run(domains: list[FloatArray], width: int = 64) -> DomainClusters:
    return cluster_domains(domains, K, np.random.default_rng(0), width=width, choices=USUAL.with_starts(2))


def test_what_it_gives_fits_together() -> None:
    domains, _ = shifted([[20] * K, [15] * K, [9] * K])
    found = run(domains, width=5)
    assert found.axes.shape == (8, 5)
    gram = found.axes.T @ found.axes
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-5)  # axes, of lengths that fall
    assert gram[0, 0] == pytest.approx(1, rel=1e-5)
    assert (np.diff(np.diag(gram)) > 0).all()
    np.testing.assert_allclose(np.linalg.norm(found.prototypes, axis=0), np.ones(K), rtol=1e-5)
    np.testing.assert_allclose(found.mean, np.mean([unit_rows(d).mean(0) for d in domains], 0), atol=1e-6)
    np.testing.assert_allclose(found.assignments.sum(1), np.ones(176), rtol=1e-5)
    parts = np.split(found.assignments, [80, 140])
    np.testing.assert_allclose(found.proportions, [part.mean(0) for part in parts], atol=1e-6)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_domains_share_their_clusters_and_have_proportions_of_their_own(order: list[int]) -> None:
    sizes = np.array([[40, 20, 12, 8], [8, 14, 24, 34]])[order]
    domains, truths = shifted(sizes.tolist())
    found, truth = run(domains), np.concatenate(truths)
    labels = found.assignments.argmax(1)
    assert adjusted_rand_score(truth, labels) == 1  # each domain is seen from its own mean
    names = match(truth, labels)
    np.testing.assert_allclose(found.proportions[:, [names[k] for k in range(K)]], sizes / 80, atol=0.05)
    np.testing.assert_array_equal(run(domains).prototypes, found.prototypes)  # the generator decides


def directions(groups: int, width: int) -> Tensor:
    vectors = torch.randn(groups, width, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(vectors, dim=1)


def test_clusters_of_domains_are_matched_whatever_their_order() -> None:
    generator = torch.Generator().manual_seed(3)
    shared = directions(6, 5)
    orders = [torch.randperm(6, generator=generator) for _ in range(4)]
    found = match_domains([shared[order] for order in orders])
    torch.testing.assert_close(found, shared[orders[0]])  # in the order of the first of equal results


def test_matched_clusters_are_averaged_and_the_best_start_wins() -> None:
    shared, draw = directions(6, 12), torch.Generator().manual_seed(4)
    means = []
    for noise in (2.0, 0.05, 0.05, 0.05):  # the first domain is a bad start
        moved = shared + noise * torch.randn(6, 12, generator=draw) / math.sqrt(12)
        means.append(torch.nn.functional.normalize(moved, dim=1)[torch.randperm(6, generator=draw)])
    found = match_domains(means)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(6))
    names = (shared @ found.T).argmax(1)
    assert sorted(names.tolist()) == list(range(6))
    three = [own[(shared @ own.T).argmax(1)] for own in means[1:]]
    rest = means[0][[int((means[0] @ found[name]).argmax()) for name in names]]
    assert len({tuple(row) for row in rest.tolist()}) == 6  # its best partners are one to one
    by_hand = torch.nn.functional.normalize(rest + sum(three), dim=1)
    torch.testing.assert_close(found[names], by_hand, atol=1e-4, rtol=0)
    assert float((shared * found[names]).sum(1).min()) > 0.8
