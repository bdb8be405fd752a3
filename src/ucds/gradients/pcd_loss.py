"""The loss of PCD: its equations in the order of the paper, and the loss that is composed of them.

:class:`PCDLoss` needs neither a run nor a network of this package: it takes the features and logits of a
batch from any source.

Transport (Eq. 1) and proportions (Eq. 2) are defined by domain. The sampler gives a batch domain after
domain, with the same number of samples of each domain in every step; :func:`stack_domains` lays it out as
``(D, m, ...)`` with ``m`` the largest block. Shorter blocks end in padding rows whose weight is zero. The
layout is known on the CPU: nothing here waits for a device.

The losses are means over the batch they are given. With several processes the caller gives the pooled batch,
because the marginal entropy is not linear in its samples. The plan of Eq. 1 comes from
:mod:`ucds.gradients.transport`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ucds.arguments import checked
from ucds.config import PCDSettings
from ucds.errors import InputError, brief
from ucds.gradients.mixing import Mixture
from ucds.gradients.transport import cosine_cost, solve_transport


def stack_domains(values: Tensor, counts: Sequence[int]) -> Tensor:
    """Stack the ``(n, ...)`` rows of a batch, grouped by domain, as ``(D, m, ...)`` with ``m = max(counts)``.

    Rows are zero where a domain has fewer. The ``counts``, the rows of each domain, must add up to n.
    """
    if sum(counts) != len(values):
        raise InputError(f"`counts` add up to {sum(counts)} rows, but the batch has {len(values)}")
    if len(counts) == 1:
        return values.unsqueeze(0)
    return pad_sequence(list(torch.split(values, list(counts))), batch_first=True)


def sample_weights(counts: Sequence[int], device: torch.device | str | None = None) -> Tensor:
    """Weight every sample of a domain alike: the paper's marginal ``u``.

    Row ``d`` of the ``(D, m)`` result holds ``1 / counts[d]`` in its first ``counts[d]`` places, and zero in
    the padding.
    """
    return pad_sequence([torch.full((count,), 1.0 / count) for count in counts], batch_first=True).to(device)


def transport_loss(cost: Tensor, plan: Tensor) -> Tensor:
    """Compute the cost of moving the data onto the prototypes by a fixed plan, averaged over domains (Eq. 1).

    Plan and cost are ``(D, m, K)``; the plan has zeros in padding rows. The entropy of a fixed plan does not
    depend on the model, so it is left out.
    """
    return (plan.detach() * cost).sum((-2, -1)).mean()


def cluster_posterior(logits: Tensor, proportions: Tensor) -> Tensor:
    """Compute the probability ``(D, m, K)`` of each cluster given a sample, under its domain's proportions.

    This is the E-step of Eq. 2: ``pi(k | f) = softmax_k(mu_k . f + log B_k)``, with the products ``mu_k . f``
    as ``(D, m, K)`` logits and B as ``(D, K)``; an entry of zero excludes that cluster.
    """
    return (at_least_single(logits) + proportions.log().unsqueeze(-2)).softmax(-1)


@torch.no_grad()
def update_proportions(proportions: Tensor, logits: Tensor, weights: Tensor, momentum: float) -> Tensor:
    """Move every domain's proportions towards what the batch shows (Eq. 2 and its moving average).

    ``B <- beta B + (1 - beta) mean_j pi(. | f_j)``, with B ``(D, K)`` and the momentum as beta. The mean runs
    over the domain's samples in the batch: its ``(D, m, K)`` logits are padded as by :func:`stack_domains`,
    and the ``(D, m)`` weights of :func:`sample_weights` are zero for padding.
    """
    estimate = torch.einsum("dm,dmk->dk", weights, cluster_posterior(logits, proportions))
    return torch.lerp(estimate, proportions, momentum)


def cosine_momentum(initial: float, progress: float) -> float:
    """Compute ``beta`` on its schedule: ``1 - beta`` falls from ``1 - initial`` to zero along a half cosine.

    The paper says only that beta "follows a cosine learning rate schedule". It is ``1 - beta`` that
    acts as a learning rate; letting beta itself fall to zero would end on the estimate of a single batch.
    ``initial`` is the paper's ``beta_0``, and ``progress`` the share of the stage that is done.
    """
    return 1.0 - (1.0 - initial) * 0.5 * (1.0 + math.cos(math.pi * progress))


def mutual_information_loss(logits: Tensor) -> Tensor:
    """Compute the negative mutual information of samples and cluster labels, in nats (Eq. 3).

    ``-(H(mean_j p_j) - mean_j H(p_j))``: lowest, at ``-log K``, when every sample is certain of its
    cluster and all clusters are equally large; zero when labels tell nothing about samples.
    """
    log_p = at_least_single(logits).log_softmax(-1)
    p = log_p.exp()
    conditional = -(p * log_p).sum(-1).mean()
    # The mean probability of a dead cluster can underflow to 0, where p log p has limit 0 but log has none.
    mean = p.mean(0)
    marginal = -(mean * mean.clamp_min(1e-30).log()).sum()
    return conditional - marginal


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the cross-entropy against soft targets, ``L(G(x~), y~)``; the targets get no gradient."""
    return -(targets.detach() * at_least_single(logits).log_softmax(-1)).sum(-1).mean()


def smooth_labels(labels: Tensor, n_clusters: int, smoothing: float) -> Tensor:
    """Interpolate hard labels with the uniform distribution: ``y_k = (1 - gamma) [k = label] + gamma / K``.

    The ``(n,)`` labels are integers in ``[0, K)``; ``smoothing`` is the paper's ``gamma``, in ``[0, 1]``.
    """
    one_hot = torch.nn.functional.one_hot(labels.long(), n_clusters).float()
    return (1.0 - smoothing) * one_hot + smoothing / n_clusters


def place_targets(targets: Tensor, rows: Tensor, n_samples: int) -> Tensor:
    """Put the targets of some samples in their rows among all samples; the others get a row of zeros.

    A row of zeros means "no target" and needs no mask: its distance ``KL(0 || G) = sum 0 log(0 / G)`` and its
    gradient are zero, whatever the model predicts, and no distribution is equal to it.
    """
    placed = targets.new_zeros(n_samples, targets.shape[-1])
    placed[rows] = targets
    return placed


def temporal_ensemble(targets: Tensor, predictions: Tensor, momentum: float) -> Tensor:
    """Blend past targets with the model's current predictions: ``y <- tau y + (1 - tau) G(x)``.

    Predictions are ``(n, K)`` probabilities of the samples, from the model in evaluation mode. A sample
    without a target (a row of zeros) takes the prediction as it is, and is like any other from then on. With
    a momentum of 1, the paper's ``tau``, predictions count for nothing, so it stays without a target.
    """
    if momentum == 1.0:
        return targets.clone()
    predictions = predictions.to(targets)
    has_past = targets.any(-1, keepdim=True)
    return torch.where(has_past, torch.lerp(predictions, targets, momentum), predictions)


def distillation_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the distance of the model's predictions from the targets, ``KL(y || G(x))``, in nats (stage 2).

    No gradient flows into the ``(n, K)`` targets. A row of zeros means "no target": the loss is the mean over
    the other rows, and zero without any.
    """
    targets = targets.detach()
    negative_entropy = (targets * targets.clamp_min(1e-30).log()).sum(-1).mean()
    # A row of zeros adds nothing to the two means over all rows. Scaled by 1, exactly, when there is none.
    scale = len(targets) / targets.any(-1).sum().clamp_min(1)
    return scale * (negative_entropy + soft_cross_entropy(logits, targets))


def at_least_single(values: Tensor) -> Tensor:
    """Return ``values`` in fp32, or untouched when they are fp32 or fp64 already.

    Entropies and logarithms of small probabilities lose all their digits in half precision.
    """
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


class PCDLoss(nn.Module):
    """The loss of PCD for one batch (Eq. 1 to 4), with the state that it carries from batch to batch.

    The terms of stage 1 are transport, mutual information and mixing; stage 2 adds distillation, and stage 3
    has no mixing: a term belongs to the sum if its inputs are given. Call
    :meth:`update_proportions` before the loss of each batch, as Algorithm 1 does.

    Args:
        counts: number of samples of each of D domains in a batch that is sorted by domain.
        n_clusters: number of clusters, K.
        settings: weights of the terms, epsilon and the precision of the plan, as an object or by name; the
            defaults if ``None``.
        targets: ``(N, K)`` soft targets of all samples, the paper's ``y^``, for stage 2; a row of zeros
            stands for a sample that has none. ``None`` in the other stages.
        device: device of the batches.

    Attributes:
        proportions: ``(D, K)`` sizes of the clusters in each domain, the paper's B; uniform at first.

    Raises:
        InputError: there are no domains, or one without samples; there are no clusters; the targets are not
            ``(N, K)``; or, in a call, the batch does not fit.
    """

    proportions: Tensor

    @checked
    def __init__(
        self,
        counts: Sequence[int],
        n_clusters: int,
        settings: PCDSettings | Mapping[str, Any] | None = None,
        *,
        targets: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if not counts or not all(isinstance(count, Integral) and count > 0 for count in counts):
            raise InputError(f"`counts` must be a positive integer for each domain, not {brief(counts)}")
        if n_clusters < 1:
            raise InputError(f"`n_clusters` must be at least 1, not {n_clusters}")
        if targets is not None and (targets.ndim != 2 or targets.shape[1] != n_clusters):
            raise InputError(f"`targets` must be (N, {n_clusters}), not {tuple(targets.shape)}")
        uniform = torch.full((len(counts), n_clusters), 1.0 / n_clusters, device=device)
        self.register_buffer("proportions", uniform)
        self.register_buffer("targets", targets)
        self.targets: Tensor | None
        self._counts, self._weights = counts, sample_weights(counts, device)
        self._worst_error = torch.zeros((), device=device)
        self._settings = settings if isinstance(settings, PCDSettings) else PCDSettings(**(settings or {}))

    def update_proportions(self, logits: Tensor, momentum: float) -> None:
        """Update the proportions with the logits ``(n, K)`` of a batch (Eq. 2); old ones have weight beta."""
        stacked = stack_domains(logits, self._counts)
        self.proportions = update_proportions(self.proportions, stacked, self._weights, momentum)

    def update_targets(self, predictions: Tensor) -> None:
        """Blend the targets with predictions ``(N, K)`` of the same samples: the temporal ensemble."""
        if self.targets is None:
            raise InputError("this loss has no targets to update: give them when you make it")
        self.targets = temporal_ensemble(self.targets, predictions, self._settings.ensemble_momentum)

    def transport(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Compute the transport cost of a batch, averaged over domains (Eq. 1).

        The plan is held fixed: the gradient flows through the cost.

        Returns:
            A scalar; zero, without solving anything, when the setting ``transport_weight`` is zero.

        Raises:
            InputError: features or prototypes are no longer finite.
        """
        settings = self._settings
        if settings.transport_weight == 0:
            return features.new_zeros(())
        cost = stack_domains(cosine_cost(features, prototypes), self._counts)
        # The potentials of the last batch are no good start: they belong to other samples, and with them
        # the solver needs more iterations, not fewer.
        try:
            solution = solve_transport(
                cost,
                self._weights,
                self.proportions,
                epsilon=settings.epsilon,
                tolerance=settings.transport_tolerance,
                max_iterations=settings.transport_max_iterations,
            )
        except ValueError:
            if bool(cost.isfinite().all() & self.proportions.isfinite().all()):
                raise
            raise InputError("the features are no longer finite: lower the learning rate") from None
        self._worst_error = torch.maximum(self._worst_error, solution.marginal_error.max().float())
        return transport_loss(cost, solution.plan)

    def forward(
        self,
        features: Tensor,
        prototypes: Tensor,
        logits: Tensor,
        *,
        mixed: tuple[Mixture, Tensor] | None = None,
        index: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch, a scalar: the sum of its :meth:`terms`.

        Features are ``(n, d_f)``, prototypes ``(d_f, K)``, and logits the products of both; further arguments
        and errors are those of :meth:`terms` and :meth:`transport`.
        """
        terms = self.terms(self.transport(features, prototypes), logits, mixed=mixed, index=index)
        return torch.stack(list(terms.values())).sum()

    def terms(
        self,
        transport: Tensor,
        logits: Tensor,
        *,
        mixed: tuple[Mixture, Tensor] | None = None,
        index: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Compute the weighted terms of the loss of a batch, by name.

        Args:
            transport: transport cost of the batch, of :meth:`transport`.
            logits: ``(n, K)`` logits of the batch.
            mixed: result of :func:`ucds.gradients.mixing.mix`, and the logits of the mixed samples; no mixing
                term if ``None``.
            index: ``(n,)`` positions of the batch in the targets; no distillation if ``None``.
        """
        settings, terms = self._settings, dict[str, Tensor]()
        if logits.shape[-1] != (k := self.proportions.shape[-1]):
            raise InputError(f"`logits` must be (n, {k}), not {tuple(logits.shape)}")
        if index is not None and self.targets is not None:
            distance = distillation_loss(logits, self.targets[index])  # KL(y^ || G)
            terms["distillation"] = settings.distillation_weight * distance
        terms["transport"] = settings.transport_weight * transport  # Eq. 1
        terms["information"] = settings.information_weight * mutual_information_loss(logits)  # Eq. 3
        if mixed is not None:
            mixture, mixed_logits = mixed
            distance = soft_cross_entropy(mixed_logits, mixture.mix_targets(logits.softmax(-1)))
            terms["mixing"] = settings.mixing_weight * distance
        return terms

    @property
    def warning(self) -> str | None:
        """One sentence when a plan missed its marginals by more than the tolerance, else ``None``."""
        worst, tolerance = float(self._worst_error), self._settings.transport_tolerance
        if worst <= tolerance:
            return None
        return (
            f"a transport plan missed its marginals by {worst:.2g} (transport_tolerance is "
            f"{tolerance:g}): raise transport_max_iterations or epsilon"
        )
