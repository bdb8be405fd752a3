"""Entropic transport: known answers, identities, agreement with POT, degenerate problems."""

import math

import ot as pot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ucds.gradients.transport
from ucds.gradients.transport import TransportPlan, cosine_cost, solve_transport

pytestmark = pytest.mark.torch

Problem = tuple[Tensor, Tensor, Tensor]


def random_problem(rows: int, columns: int, seed: int, width: int = 8) -> Problem:
    """Random directions, random positive weights, fp64."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(width, columns, generator=generator, dtype=torch.float64)
    u = 0.1 + torch.rand(rows, generator=generator, dtype=torch.float64)
    v = 0.1 + torch.rand(columns, generator=generator, dtype=torch.float64)
    return cosine_cost(features, prototypes), u / u.sum(), v / v.sum()


def clustered_problem(rows: int, columns: int, seed: int, noise: float) -> Problem:
    """Tight clusters around the prototypes: the first has most samples, the last is to get most mass."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(
        torch.randn(columns, 64, generator=generator, dtype=torch.float64), dim=1
    )
    sizes = 1 / torch.arange(1, columns + 1, dtype=torch.float64)
    members = torch.multinomial(sizes, rows, replacement=True, generator=generator)
    features = centres[members] + noise * torch.randn(rows, 64, generator=generator, dtype=torch.float64) / 8
    u = torch.full((rows,), 1 / rows, dtype=torch.float64)
    return cosine_cost(features, centres.T), u, sizes.flip(0) / sizes.sum()


def uniform(*shape: int) -> Tensor:
    return torch.full(shape, 1 / shape[-1], dtype=torch.float64)


def check_marginals(result: TransportPlan, u: Tensor, v: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(result.plan.sum(-1), u.to(result.plan.dtype), rtol=1e-6, atol=1e-9)
    violation = (result.plan.sum(-2) - v).abs().sum(-1)
    torch.testing.assert_close(
        violation.double(), result.marginal_error.double(), rtol=0, atol=1e-6 if v.dtype == u.dtype else 1e-4
    )
    assert bool(result.converged.all())
    assert bool((violation <= tolerance + 1e-6).all())


def test_the_plan_has_the_gibbs_form_of_its_potential():
    cost, u, v = random_problem(12, 5, 1)
    result = solve_transport(cost, u, v, epsilon=0.05, tolerance=1e-10)
    shares = torch.softmax((result.potential - cost) / 0.05, -1)
    torch.testing.assert_close(result.plan, u[:, None] * shares, rtol=1e-9, atol=1e-14)
    assert abs(float(result.potential.mean())) < 1e-12


@pytest.mark.parametrize(
    ("rows", "columns", "epsilon"),
    [(64, 31, 0.5), (64, 31, 0.05), (64, 31, 0.005), (21, 65, 0.05), (30, 3, 0.01)],
)
def test_agrees_with_pot(rows, columns, epsilon):
    cost, u, v = random_problem(rows, columns, seed=rows)
    expected = pot.sinkhorn(
        u, v, cost, reg=epsilon, method="sinkhorn_log", stopThr=1e-9, numItermax=100_000, warn=False
    )
    assert float((expected.sum(0) - v).abs().sum()) < 1e-6  # else POT would be no reference
    result = solve_transport(cost, u, v, epsilon=epsilon, tolerance=1e-9)
    assert bool(result.converged)
    torch.testing.assert_close(result.plan, expected, rtol=0, atol=1e-7)
    assert float((result.plan - expected).abs().sum()) < 1e-5
    single = solve_transport(cost.float(), u.float(), v.float(), epsilon=epsilon, tolerance=1e-6)
    assert single.plan.dtype == torch.float32
    assert float((single.plan - expected).abs().sum()) < 1e-3


def test_a_batch_equals_its_problems_one_by_one():
    # An easy problem and a hard one: the first has to stay put while the second goes on. There are two
    # dimensions of batches.
    problems = [random_problem(32, 10, 6, width=256), clustered_problem(32, 10, 6, noise=0.2)]
    cost, u, v = (torch.stack(parts)[:, None] for parts in zip(*problems, strict=True))
    together = solve_transport(cost, u, v, epsilon=0.1)
    alone = [solve_transport(*problem, epsilon=0.1) for problem in problems]
    assert alone[0].iterations < alone[1].iterations == together.iterations
    for index, result in enumerate(alone):
        torch.testing.assert_close(together.plan[index, 0], result.plan, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(together.potential[index, 0], result.potential, rtol=1e-9, atol=1e-12)
    assert together.marginal_error.shape == together.converged.shape == (2, 1)


@pytest.mark.parametrize("filling", [0.0, 2.0, math.nan, math.inf])
def test_padding_changes_nothing(filling):
    cost, u, v = random_problem(20, 6, 8)
    padded = torch.cat([cost, torch.full((5, 6), filling, dtype=torch.float64)])
    expected = solve_transport(cost, u, v, epsilon=0.2, tolerance=1e-8)
    result = solve_transport(padded, torch.cat([u, torch.zeros(5)]), v, epsilon=0.2, tolerance=1e-8)
    torch.testing.assert_close(result.plan[:20], expected.plan, rtol=1e-9, atol=1e-12)
    assert bool((result.plan[20:] == 0).all())
    torch.testing.assert_close(result.potential, expected.potential)


@pytest.mark.parametrize(("empty", "kept"), [([2, 4], [0, 1, 3, 5]), ([0, 2, 3, 4, 5], [1])])
def test_a_column_without_mass_gets_nothing(empty, kept):
    cost, u, v = random_problem(20, 6, 9)
    v[empty] = 0.0
    v /= v.sum()
    result = solve_transport(cost, u, v, epsilon=0.1, tolerance=1e-8)
    assert bool((result.plan[:, empty] == 0).all())
    assert bool(result.potential.isfinite().all())
    expected = solve_transport(cost[:, kept], u, v[kept], epsilon=0.1, tolerance=1e-8)
    torch.testing.assert_close(result.plan[:, kept], expected.plan, rtol=0, atol=1e-8)
    assert result.iterations <= expected.iterations + 1  # Newton steps go on beside such columns


@pytest.mark.parametrize("tiny", [1e-6, 1e-12, 1e-30, 1e-45, 1e-300])
def test_tiny_columns(tiny):
    cost, u, v = clustered_problem(64, 31, seed=10, noise=0.3)
    v[:10] = tiny
    v /= v.sum()
    result = solve_transport(cost, u, v, tolerance=1e-6)
    check_marginals(result, u, v, 1e-6)
    assert bool(result.potential.isfinite().all())


HARD: dict[str, Problem] = {
    "tight clusters": clustered_problem(64, 31, seed=12, noise=0.1),
    "clusters of one point": clustered_problem(64, 31, seed=13, noise=0.0),
    "more prototypes than samples": clustered_problem(21, 65, seed=14, noise=0.1),
    "many samples": clustered_problem(256, 65, seed=15, noise=0.1),
    "few dimensions": random_problem(64, 31, seed=16, width=2),
    "identical rows": (random_problem(1, 31, 17)[0].expand(64, 31), uniform(64), uniform(31)),
    "identical prototypes": (random_problem(64, 1, 18)[0].expand(64, 31), uniform(64), uniform(31)),
    "one prototype near, the others equally far": (
        torch.cat([torch.zeros(64, 1), 2 * torch.ones(64, 30)], 1).double(),
        uniform(64),
        uniform(31),
    ),
    "two groups across the sphere": (
        2 * (torch.arange(64)[:, None] % 2 != torch.arange(31) % 2).double(),
        uniform(64),
        torch.softmax(torch.arange(31) / 3.0, 0).double(),
    ),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("epsilon", [0.01, 0.001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hard_geometry_converges(name, epsilon, dtype):
    cost, u, v = (part.to(dtype) for part in HARD[name])
    result = solve_transport(cost, u, v, epsilon=epsilon)
    check_marginals(result, u, v, 1e-3)
    assert result.iterations <= {0.01: 30, 0.001: 80}[epsilon]


def test_says_when_the_iterations_were_too_few():
    cost, u, v = clustered_problem(64, 31, seed=22, noise=0.1)
    result = solve_transport(cost, u, v, max_iterations=1)
    assert result.iterations == 1
    assert not bool(result.converged)
    assert float(result.marginal_error) > 1e-3
    assert bool(result.plan.isfinite().all())
    torch.testing.assert_close(result.plan.sum(-1), u)


def test_a_failed_factorisation_falls_back_on_sinkhorn(monkeypatch):
    cost, u, v = random_problem(20, 5, 23)

    def broken(matrix: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full_like(matrix, math.nan), torch.ones(1)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", broken)
    result = solve_transport(cost, u, v, epsilon=0.1, max_iterations=1000)
    check_marginals(result, u, v, 1e-3)


def test_works_where_the_device_has_no_double_precision(monkeypatch):
    monkeypatch.setattr(ucds.gradients.transport, "working_type", lambda device: torch.float32)
    for name, (cost, u, v) in HARD.items():
        result = solve_transport(cost.float(), u.float(), v.float())
        assert bool(result.converged), name


def test_the_gradient_flows_through_the_cost_alone():
    cost, u, v = random_problem(12, 4, 24)
    cost, u, v = (part.requires_grad_() for part in (cost, u, v))
    result = solve_transport(cost, u, v)
    assert not result.plan.requires_grad
    assert not result.potential.requires_grad
    (result.plan * cost).sum().backward()
    assert cost.grad is not None
    torch.testing.assert_close(cost.grad, result.plan)
    assert u.grad is None
    assert v.grad is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype):
    generator = torch.Generator().manual_seed(25)
    features, prototypes = (torch.randn(*s, generator=generator) for s in ((24, 16), (16, 7)))
    u, v = uniform(24).float(), uniform(7).float()
    cost = cosine_cost(features, prototypes)
    expected = solve_transport(cost, u, v)
    with torch.autocast("cpu", dtype=dtype):
        inside = cosine_cost(features, prototypes)
        result = solve_transport(inside, u, v)
    assert inside.dtype == result.plan.dtype == torch.float32
    assert torch.equal(inside, cost)
    assert torch.equal(result.plan, expected.plan)


def test_plans_hold_no_subnormal_numbers():
    cost, u, v = clustered_problem(64, 31, seed=26, noise=0.1)
    plan = solve_transport(cost.float(), u.float(), v.float()).plan
    assert bool(((plan == 0) | (plan >= torch.finfo(torch.float32).tiny)).all())


def test_cosine_cost_by_hand():
    features = torch.tensor([[3.0, 0.0], [0.0, -2.0], [1.0, 1.0], [0.0, 0.0]])
    prototypes = torch.tensor([[0.5, 0.0], [0.0, 4.0]])
    root = 1 - math.sqrt(0.5)
    expected = torch.tensor([[0.0, 1.0], [1.0, 2.0], [root, root], [1.0, 1.0]])
    torch.testing.assert_close(cosine_cost(features, prototypes), expected)
    batched = cosine_cost(features.expand(2, 4, 2), prototypes)
    torch.testing.assert_close(batched, expected.expand(2, 4, 2))
    assert cosine_cost(features.bfloat16(), prototypes.bfloat16()).dtype == torch.float32


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    epsilon=st.sampled_from([1.0, 0.1, 0.01, 0.003]),
    spread=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_any_problem_converges(rows, columns, seed, epsilon, spread):
    cost, u, _ = random_problem(rows, columns, seed, width=3)
    generator = torch.Generator().manual_seed(seed)
    v = torch.softmax(spread * torch.randn(columns, generator=generator, dtype=torch.float64), 0)
    result = solve_transport(cost, u, v, epsilon=epsilon, tolerance=1e-6)
    check_marginals(result, u, v, 1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cost": torch.full((4, 3), math.nan)}, "cost holds NaN"),
        ({"cost": torch.full((4, 3), -math.inf)}, "cost must be finite"),
        (
            {"cost": torch.full((4, 3), -math.inf), "row_weights": torch.tensor([0.5, 0.5, 0, 0])},
            "cost must be finite",
        ),
        ({"row_weights": torch.full((3,), 1 / 3)}, r"needs row_weights \(\.\.\., n\)"),
        ({"row_weights": torch.tensor([0.5, 0.5, 0.5, -0.5])}, "must be non-negative"),
        ({"row_weights": torch.tensor([0.5, 0.5, math.nan, 0.0])}, "must be non-negative"),
        ({"column_weights": torch.full((4,), 0.25)}, r"needs row_weights \(\.\.\., n\)"),
        ({"column_weights": torch.tensor([0.8, 0.4, -0.2])}, "must be non-negative"),
        ({"column_weights": torch.tensor([0.8, 0.4, 0.2])}, "totals positive and equal"),
        ({"column_weights": torch.zeros(3), "row_weights": torch.zeros(4)}, "totals positive"),
    ],
)
def test_refuses_bad_input_in_words(change, words):
    arguments = {
        "cost": torch.rand(4, 3),
        "row_weights": torch.full((4,), 0.25),
        "column_weights": torch.full((3,), 1 / 3),
    }
    with pytest.raises(ValueError, match=words):
        solve_transport(**(arguments | change))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_gives_the_same_and_reads_only_the_error():
    cost, u, v = (part.expand(3, *part.shape) for part in clustered_problem(64, 31, 28, noise=0.3))
    expected = solve_transport(cost, u, v, tolerance=1e-8)
    on_gpu = [part.cuda() for part in (cost, u, v)]
    solve_transport(*on_gpu)  # libraries load on the first call
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = solve_transport(*on_gpu, tolerance=1e-8)
    torch.testing.assert_close(result.plan.cpu(), expected.plan, rtol=0, atol=1e-9)
    reads = sum(event.count for event in profile.key_averages() if event.key == "aten::_local_scalar_dense")
    assert reads <= result.iterations // 2 + 2
