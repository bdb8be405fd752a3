"""Entropic optimal transport between samples and prototypes (the paper's eq. 1).

Three solvers return the same :class:`~ucds.math.semi_dual.TransportPlan`: :func:`solve_transport`, a damped
Newton ascent made for the training loop, :func:`sinkhorn`, the plain log-domain iteration it is checked
against, and :func:`semi_relaxed_transport`, for column weights that may be left at a cost.

The paper prints the problem with ``+ epsilon * entropy``; that is a sign slip. All solvers minimise the
standard ``<plan, cost> - epsilon * entropy(plan)``.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ucds.math.semi_dual import NewtonStep, Problem, TransportPlan

# Sinkhorn steps taken first when there is no potential to start from: seven for the price of a Newton step.
_COLD_SINKHORN_STEPS = 6


def cosine_cost(features: Tensor, prototypes: Tensor) -> Tensor:
    """Cosine dissimilarity ``1 - cos(feature, prototype)``, in [0, 2] up to rounding.

    Differentiable in both arguments and never below fp32, under autocast too: divided by an epsilon of 0.01,
    the error of bf16 would be as large as the logits themselves. A feature of length 0 has cost 1.

    Args:
        features: ``(..., n, width)``.
        prototypes: ``(width, K)``, one prototype per column.

    Returns:
        The cost (the paper's C), ``(..., n, K)``.

    Raises:
        ValueError: if the widths disagree.
    """
    if features.dim() < 2 or prototypes.dim() != 2 or features.shape[-1] != prototypes.shape[0]:
        raise ValueError(
            "cosine_cost needs features (..., n, width) and prototypes (width, K), "
            f"got {tuple(features.shape)} and {tuple(prototypes.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(features.dtype, prototypes.dtype), torch.float32)
    with torch.autocast(features.device.type, enabled=False):
        directions = normalize(features.to(dtype), dim=-1, eps=1e-8)
        return 1 - directions @ normalize(prototypes.to(dtype), dim=0, eps=1e-8)


def solve_transport(
    cost: Tensor,
    row_weights: Tensor,
    column_weights: Tensor,
    *,
    epsilon: float = 0.01,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    initial_potential: Tensor | None = None,
) -> TransportPlan:
    """Solve entropic optimal transport by damped Newton ascent on the semi-dual.

    Minimises ``<plan, cost> - epsilon * entropy(plan)`` over plans with the given marginals. For column
    potentials g the rows can be solved in closed form, ``plan = u * softmax((g - cost) / epsilon)``, which
    leaves the concave ``F(g) = <v, g> - epsilon * <u, logsumexp((g - cost) / epsilon)>`` in K unknowns. Its
    gradient is the marginal error ``v - columns`` and its Hessian comes from the plan. Each iteration takes
    the best of a Sinkhorn step and of the Newton step at four lengths, between the full one and the one at
    which F is certain to rise; so F never falls, and no iteration gains less than Sinkhorn's.

    Problems are batched: those that have converged stay put while the others go on. Domains of unequal size
    are padded with rows of weight 0, whose cost may be anything. All arithmetic is in fp64 where the device
    has it (on CPUs it is also the faster: fp32 would spend its time on subnormal plan entries), whatever the
    autocast; the result is in the cost's type, at least fp32. A GPU is asked for one number in
    two iterations.

    Args:
        cost: ``(..., n, K)``.
        row_weights: mass of the samples (u), ``(..., n)``, zeros allowed.
        column_weights: mass of the prototypes (v), ``(..., K)``, zeros allowed: that column gets nothing.
        epsilon: strength of the entropy, in units of the cost.
        tolerance: the L1 marginal error to reach.
        max_iterations: Newton iterations at most; the result says whether they were enough.
        initial_potential: ``(..., K)``, the ``potential`` of an earlier result on nearly the same cost. That
            of another mini-batch is no better than none: with few samples per prototype the potentials of
            two batches have little in common.

    Returns:
        The plan (the paper's T), finite also when it has not converged.

    Raises:
        ValueError: for shapes that do not fit, weights that are negative or whose totals differ by more than
            0.1%, costs that are NaN, and settings that are not positive.

    Source: the semi-dual as in Cuturi and Peyre (2016), "A smoothed dual approach"; the safe step length from
    the generalised self-concordance of logsumexp, Sun and Tran-Dinh (2019). Checked against POT.
    """
    with torch.no_grad(), torch.autocast(cost.device.type, enabled=False):
        problem = Problem(cost, row_weights, column_weights, epsilon, tolerance, max_iterations)
        height = problem.start(initial_potential)
        if initial_potential is None:
            for _ in range(_COLD_SINKHORN_STEPS):
                height = height + problem.sinkhorn_step(problem.answer(height).columns)
        return problem.ascend(height, NewtonStep(problem))


def sinkhorn(
    cost: Tensor,
    row_weights: Tensor,
    column_weights: Tensor,
    *,
    epsilon: float = 0.01,
    tolerance: float = 1e-3,
    max_iterations: int = 10_000,
    initial_potential: Tensor | None = None,
) -> TransportPlan:
    """Solve entropic optimal transport by plain Sinkhorn iterations in the log domain.

    The reference for :func:`solve_transport`: the same problem, arguments, result and errors, an iteration
    that fits in one line, and a price of hundreds to thousands of them at an epsilon of 0.01.

    Source: Cuturi (2013), "Sinkhorn distances"; log domain as in Peyre and Cuturi (2019), section 4.4.
    """
    with torch.no_grad(), torch.autocast(cost.device.type, enabled=False):
        problem = Problem(cost, row_weights, column_weights, epsilon, tolerance, max_iterations)
        height = problem.start(initial_potential)
        # The plan's rows are exact at any height (the row update); a Sinkhorn step is the column update.
        return problem.ascend(height, lambda answer: problem.sinkhorn_step(answer.columns))


def semi_relaxed_transport(
    cost: Tensor,
    column_weights: Tensor,
    *,
    epsilon: float,
    relaxation: float,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
    initial_potential: Tensor | None = None,
) -> TransportPlan:
    """Solve entropic transport from equal row weights to column weights that may be left at a cost.

    Minimises ``<plan, cost> - epsilon * entropy(plan) + relaxation * KL(columns | column_weights)`` over
    plans whose rows sum to ``1 / n``, by alternating over the two potentials in the log domain, in fp64.

    Args:
        cost: ``(n, K)``.
        column_weights: wanted mass of the prototypes (v), ``(K,)``, positive.
        epsilon: strength of the entropy, in units of the cost.
        relaxation: the cost of leaving the column weights; infinite gives the balanced problem, 0 gives each
            sample its own softmax.
        tolerance: the largest change of the potential in one iteration at which to stop.
        max_iterations: iterations at most; the result says whether they were enough.
        initial_potential: ``(K,)``, the ``potential`` of an earlier result on nearly the same cost.

    Source: Chizat et al. (2018), "Scaling algorithms for unbalanced optimal transport problems".
    """
    scaled, log_b = -cost.double() / epsilon, column_weights.double().log()
    damping = 1.0 if math.isinf(relaxation) else relaxation / (relaxation + epsilon)
    v = torch.zeros_like(log_b) if initial_potential is None else initial_potential.double() / epsilon
    log_a, change, iterations = -math.log(len(cost)), math.inf, 0
    while change > tolerance and iterations < max_iterations:
        u = log_a - torch.logsumexp(scaled + v, dim=1)
        new = damping * (log_b - torch.logsumexp(scaled + u[:, None], dim=0))
        change = float((new - v).abs().max()) * epsilon
        v, iterations = new, iterations + 1
    u = log_a - torch.logsumexp(scaled + v, dim=1)
    plan, potential = (scaled + u[:, None] + v).exp(), v * epsilon
    columns = plan.sum(0)
    wanted = (log_b - potential / relaxation).exp() if relaxation else columns
    error = (columns - wanted).abs().sum()
    return TransportPlan(plan, potential, error, iterations, torch.tensor(change <= tolerance))
