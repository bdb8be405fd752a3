"""The terms that the stages' loops share: transport with its proportions, and CutMix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ucds.config import PCDSettings
from ucds.errors import InputError
from ucds.math.domains import stack_domains
from ucds.math.losses import soft_cross_entropy, transport_loss
from ucds.math.mixing import mix
from ucds.math.ot import cosine_cost, solve_transport
from ucds.math.proportions import uniform_proportions, update_proportions
from ucds.training.stage import Stage, Step


class PrototypeTransport:
    """Aligns the samples of every domain with the shared prototypes (Eq. 1 and 2).

    Args:
        n_domains: the paper's ``D``.
        n_clusters: the paper's ``K``.
        settings: epsilon, and how precisely to solve.
        device: of the batches to come.

    Attributes:
        proportions: ``(D, K)``, the paper's ``B``; uniform at first.
    """

    def __init__(self, n_domains: int, n_clusters: int, settings: PCDSettings, device: torch.device) -> None:
        self.proportions = uniform_proportions(n_domains, n_clusters, device)
        self._worst_error = torch.zeros((), device=device)
        self._settings = settings

    def update_proportions(
        self, logits: Tensor, counts: Sequence[int], weights: Tensor, momentum: float
    ) -> None:
        """Refine the proportions with a pooled batch of logits ``(n, K)`` (Eq. 2)."""
        stacked = stack_domains(logits, counts)
        self.proportions = update_proportions(self.proportions, stacked, weights, momentum)

    def loss(self, features: Tensor, prototypes: Tensor, counts: Sequence[int], weights: Tensor) -> Tensor:
        """Solve the transport of a pooled batch and return its cost, averaged over domains (Eq. 1).

        Args:
            features: ``(n, width)``, grouped by domain.
            prototypes: ``(width, K)``.
            counts: samples of each domain.
            weights: ``(D, m)`` from :func:`ucds.math.domains.sample_weights`.

        Returns:
            A scalar; zero, without solving anything, when the configuration gives transport no weight.
        """
        if self._settings.transport_weight == 0:
            return features.new_zeros(())
        cost = stack_domains(cosine_cost(features, prototypes), counts)
        # Without the last batch's potentials: they belong to other samples, and from them the solver was
        # found to need more iterations, not fewer.
        try:
            solution = solve_transport(
                cost,
                weights,
                self.proportions,
                epsilon=self._settings.epsilon,
                tolerance=self._settings.transport_tolerance,
                max_iterations=self._settings.transport_max_iterations,
            )
        except ValueError:
            if bool(cost.isfinite().all() & self.proportions.isfinite().all()):
                raise
            raise InputError("the features are no longer finite: lower the learning rate") from None
        self._worst_error = torch.maximum(self._worst_error, solution.marginal_error.max().float())
        return transport_loss(cost, solution.plan)

    @property
    def warning(self) -> str | None:
        """One sentence when a transport was left further from its marginals than asked, else ``None``."""
        worst = float(self._worst_error)
        if worst <= self._settings.transport_tolerance:
            return None
        return (
            f"a transport plan missed its marginals by {worst:.2g} (transport_tolerance is "
            f"{self._settings.transport_tolerance:g}): raise transport_max_iterations or epsilon"
        )

    def tensors(self) -> dict[str, Tensor]:
        """State by name, for checkpoints."""
        return {"proportions": self.proportions}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over a state that :meth:`tensors` gave before."""
        self.proportions = tensors["proportions"].to(self.proportions)


def mixing_loss(stage: Stage, step: Step, logits: Tensor) -> Tensor:
    """CutMix on the pooled batch: predictions of mixed samples follow the mixed predictions.

    Pairs are drawn from all domains together, which keeps the model from telling domains apart.

    Args:
        stage: whose model predicts.
        step: whose batch is mixed.
        logits: ``(n, K)`` of the pooled batch; they become targets, without gradient.

    Returns:
        A scalar; zero, without a second forward pass, when the configuration gives mixing no weight.
    """
    if stage.settings.mixing_weight == 0:
        return logits.new_zeros(())
    mixture = mix(stage.pool(step.inputs), stage.settings.mixing_alpha, step.rng)
    mixed_logits = stage.forward(stage.share(mixture.inputs)).logits
    return soft_cross_entropy(mixed_logits, mixture.mix_targets(logits.softmax(-1)))
