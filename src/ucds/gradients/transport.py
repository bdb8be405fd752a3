"""Entropic optimal transport between samples and prototypes (the paper's Eq. 1).

:func:`solve_transport` is a damped Newton ascent made for the training loop. The tests compare it with POT,
which is at least five times slower on hard problems. The paper prints the problem with
``+ epsilon * entropy``; that is a sign slip. The standard ``<plan, cost> - epsilon * entropy(plan)`` is
minimised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, threshold

# Column mass below this is read as this much when a logarithm is taken: no step becomes infinite.
_LEAST_MASS = {torch.float64: 1e-130, torch.float32: 1e-15}
# Relative difference of the marginals' totals that still counts as rounding, and is scaled away.
_TOTALS_MAY_DIFFER = 1e-3
# Levenberg damping, as a part of each column's own marginal error: it fades as the column fits, so the last
# steps are pure Newton steps. Found on random, clustered and degenerate problems from 64 x 7 to 1024 x 65.
_DAMPING = 0.03
# Lengths of the Newton step that are tried, from the full one to the one that is certain to raise F.
_STEP_LENGTHS = 4
# Sinkhorn steps taken first: seven cost as much as a Newton step. The potential of an earlier mini-batch
# would be no better start: with few samples per prototype those of two batches have little in common.
_SINKHORN_STEPS = 6


@dataclass(frozen=True)
class TransportPlan:
    """Plan: the mass that goes from every sample to every prototype; and how well the solver did."""

    plan: Tensor  # (..., n, K), a constant (no gradient); rows sum to the row weights, up to rounding
    potential: Tensor  # (..., K), of the columns, in units of the cost, with mean 0
    marginal_error: Tensor  # (...,), the L1 distance between the plan's column sums and the column weights
    iterations: int  # of the slowest problem in the batch
    converged: Tensor  # (...,), whether the tolerance was reached


def cosine_cost(features: Tensor, prototypes: Tensor) -> Tensor:
    """Compute the paper's cost C: ``1 - cos(feature, prototype)``, in [0, 2] up to rounding.

    Features ``(..., n, width)`` and prototypes ``(width, K)`` give costs ``(..., n, K)``, differentiable in
    both and never below fp32, even under autocast: divided by an epsilon of 0.01, the error of bf16 would be
    as large as the logits. A feature of length 0 has cost 1.
    """
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
) -> TransportPlan:
    """Solve entropic optimal transport by damped Newton ascent on the semi-dual.

    For column potentials g the rows have the closed form ``u * softmax((g - cost) / epsilon)``, which leaves
    the concave ``F(g) = <v, g> - epsilon * <u, logsumexp((g - cost) / epsilon)>`` in K unknowns. Its
    gradient is the marginal error ``v - columns`` and its Hessian comes from the plan. Each iteration takes
    the best of a Sinkhorn step and of the Newton step at four lengths, between the full one and the one at
    which F is certain to rise; so F never falls, and no iteration gains less than Sinkhorn's.

    Problems are batched: converged ones stay unchanged while the others go on. Domains of unequal size
    are padded with rows of weight 0, whose cost may be anything. All arithmetic is in fp64 if the device has
    it, even under autocast; on CPUs, fp64 is also faster, because fp32 would spend its time on subnormal plan
    entries. The result has the cost's type, at least fp32. A GPU is read once in two iterations.

    Args:
        cost: ``(..., n, K)``.
        row_weights: mass of the samples (u), ``(..., n)``, zeros allowed.
        column_weights: mass of the prototypes (v), ``(..., K)``, zeros allowed: that column gets nothing.
        epsilon: strength of the entropy, in units of the cost.
        tolerance: the L1 marginal error to reach.
        max_iterations: largest number of Newton iterations; the result says whether they were enough.

    Returns:
        The plan (the paper's T), finite also when it has not converged.

    Raises:
        ValueError: shapes do not fit, weights are negative, the totals of the weights differ by more than
            0.1%, or costs are not finite.

    Source: the semi-dual as in Cuturi and Peyre (2016), "A smoothed dual approach"; the safe step length from
    the generalised self-concordance of logsumexp, Sun and Tran-Dinh (2019). Checked against POT.
    """
    with torch.no_grad(), torch.autocast(cost.device.type, enabled=False):
        return _Problem(cost, row_weights, column_weights, epsilon).solve(tolerance, max_iterations)


class _Answer(NamedTuple):
    """The optimal rows for a height, ``plan = kernel * mass``, as factors: the product is needed once."""

    kernel: Tensor  # (batch, n, K), exp((g - cost) / epsilon), each row over its maximum
    total: Tensor  # (batch, n, 1), the kernel's row sums
    mass: Tensor  # (batch, n, 1), row weights over totals
    columns: Tensor  # (batch, K), the plan's column sums


class _Problem:
    """A batch of transport problems in working precision, as ``(batch, n, K)``.

    ``height`` is the column potential in units of epsilon, ``(batch, K)``.
    """

    def __init__(self, cost: Tensor, row_weights: Tensor, column_weights: Tensor, epsilon: float) -> None:
        *batch, rows, columns = cost.shape
        if row_weights.shape != (*batch, rows) or column_weights.shape != (*batch, columns):
            raise ValueError(
                f"a cost (..., n, K) needs row_weights (..., n) and column_weights (..., K), got "
                f"{tuple(cost.shape)}, {tuple(row_weights.shape)} and {tuple(column_weights.shape)}"
            )
        self.epsilon, self.batch_shape = epsilon, batch
        self.result_type = torch.promote_types(cost.dtype, torch.float32)
        self.work_type = working_type(cost.device)
        self.rows = row_weights.detach().reshape(-1, rows, 1).to(self.work_type)
        given = column_weights.detach().reshape(-1, columns).to(self.work_type)
        row_total, column_total = self.rows.sum(-2), given.sum(-1, keepdim=True)
        sound = (row_total - column_total).abs() <= _TOTALS_MAY_DIFFER * row_total
        sound &= torch.minimum(self.rows.amin(-2), given.amin(-1, keepdim=True)) >= 0
        # Weights that make no sense become NaN, which poisons the solution, so that the first check of
        # convergence finds it: to look at them now would make a GPU wait.
        self.columns = given * torch.where(sound, row_total / column_total, math.nan)
        self.used = self.columns != 0
        self.log_columns = self.columns.clamp(min=_LEAST_MASS[self.work_type]).log()
        logits = cost.detach().reshape(-1, rows, columns).to(self.work_type) * (-1 / epsilon)
        # Padding may hold anything, NaN too; a column without mass is no choice for any row.
        logits.masked_fill_(self.rows == 0, 0.0)
        self.logits = logits.masked_fill_(~self.used[:, None, :], -math.inf)
        # F does not change along constants, so its Hessian is singular there: this puts a positive number in
        # that direction's place, and no other.
        self.gauge = self.columns.new_full((1, 1, 1), 1.0 / columns**2)
        self.ridge = 1e3 * torch.finfo(self.work_type).eps
        self.lengths = torch.linspace(
            0, 1, _STEP_LENGTHS, dtype=self.columns.dtype, device=self.columns.device
        )
        # On a GPU every look at the error waits for the queue; an iteration too many costs less than that.
        self.check_every = 2 if cost.is_cuda else 1

    def solve(self, tolerance: float, max_iterations: int) -> TransportPlan:
        """Take steps until every problem of the batch has converged, or the iterations are used up."""
        height = torch.zeros_like(self.columns)
        for _ in range(_SINKHORN_STEPS):
            height = height + self._sinkhorn_step(self._answer(height).columns)
        iteration = 0
        while True:
            answer = self._answer(height)
            error = (self.columns - answer.columns).abs().sum(-1)
            last = iteration >= max_iterations
            if last or iteration % self.check_every == 0:
                worst = float(error.amax())  # reads one number from the device
                if math.isnan(worst):
                    raise ValueError(self._complaint())
                if last or worst <= tolerance:
                    break
            moving = (error > tolerance)[:, None]
            height = torch.where(moving, height + self._best_step(answer), height)
            iteration += 1
        potential = (height - height.mean(-1, keepdim=True)) * self.epsilon
        # Subnormal entries would slow every later product with the plan down on a CPU, tenfold and more.
        plan = (answer.kernel * answer.mass).to(self.result_type)
        plan = threshold(plan, torch.finfo(self.result_type).tiny, 0.0)
        return TransportPlan(
            plan=plan.reshape(*self.batch_shape, *plan.shape[1:]),
            potential=potential.to(self.result_type).reshape(*self.batch_shape, -1),
            marginal_error=error.to(self.result_type).reshape(self.batch_shape),
            iterations=iteration,
            converged=(error <= tolerance).reshape(self.batch_shape),
        )

    def _answer(self, height: Tensor) -> _Answer:
        """Solve for the rows in closed form (a softmax; by hand, as the library's is slower in fp64)."""
        kernel = self.logits + height[:, None, :]
        kernel -= kernel.amax(-1, keepdim=True)
        kernel.exp_()
        total = kernel.sum(-1, keepdim=True)
        mass = self.rows / total
        return _Answer(kernel, total, mass, (mass.mT @ kernel)[:, 0])

    def _sinkhorn_step(self, columns: Tensor) -> Tensor:
        """The change of height that would give each column its mass if the rows did not react."""
        step = self.log_columns - columns.clamp(min=_LEAST_MASS[self.work_type]).log()
        return torch.where(self.used, step, 0.0)

    def _best_step(self, answer: _Answer) -> Tensor:
        """The change of height with the largest F, ``(batch, K)``."""
        newton = self._direction(answer)[:, None, :]
        span = (newton.amax(-1, keepdim=True) - newton.amin(-1, keepdim=True)).clamp(min=1e-12)
        # F is certain to rise at the length log(1 + span) / span; the full step, length 1, is best near the
        # solution. The lengths lie between the two, at equal ratios.
        lengths = (span.log1p() / span) ** self.lengths[:, None]
        steps = torch.cat((newton * lengths, self._sinkhorn_step(answer.columns)[:, None, :]), 1)
        # How much F would rise with each step, without exponentials but the steps' own. A direction spoilt by
        # a failed factorisation is NaN here, and a step whose exponentials leave the range of the type is
        # infinite: both lose against the Sinkhorn step.
        top = steps.amax(-1, keepdim=True)
        growth = (answer.kernel @ (steps - top).exp().mT / answer.total).log()
        gains = ((steps - top) @ self.columns[..., None] - growth.mT @ self.rows)[..., 0]
        best = gains.nan_to_num(-math.inf, -math.inf, -math.inf).argmax(-1)[:, None, None]
        return steps.gather(1, best.expand(-1, 1, steps.shape[-1]))[:, 0]

    def _direction(self, answer: _Answer) -> Tensor:
        """Newton's direction: the Hessian's negative, ``diag(columns) - plan^T diag(1/u) plan``, solved."""
        residual = self.columns - answer.columns
        hessian = self.gauge - answer.kernel.mT @ (answer.kernel * (answer.mass / answer.total))
        hessian.diagonal(dim1=-2, dim2=-1).add_(answer.columns + self.ridge + _DAMPING * residual.abs())
        factor, _ = torch.linalg.cholesky_ex(hessian)
        return torch.cholesky_solve(residual[..., None], factor)[..., 0]

    def _complaint(self) -> str:
        """The error that explains a solution with NaN."""
        if bool(self.logits.isnan().any()):
            return "cost holds NaN: the features or the prototypes have diverged"
        if not bool((self.rows >= 0).all()) or bool(self.columns.isnan().any()):
            return "row_weights and column_weights must be non-negative, and their totals positive and equal"
        return "cost must be finite: a row has nothing but infinite costs, or a cost is minus infinity"


def working_type(device: torch.device) -> torch.dtype:
    """fp64, unless the device lacks it."""
    return torch.float32 if device.type == "mps" else torch.float64
