"""The transport of samples to prototypes and the sizes of the clusters, which all stages share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ucds.config import PCDSettings
from ucds.errors import InputError
from ucds.gradients.losses import sample_weights, stack_domains, transport_loss, update_proportions
from ucds.gradients.transport import cosine_cost, solve_transport


class PrototypeTransport(nn.Module):
    """Aligns the samples of every domain with the shared prototypes (Eq. 1 and 2).

    It is the state that the loop of a stage carries from step to step, apart from the model. A checkpoint
    holds its buffers.

    Args:
        counts: number of samples of each of D domains in a pooled batch.
        n_clusters: number of clusters, K.
        settings: settings of the method, with epsilon and the precision of the plan.
        device: device of the batches.

    Attributes:
        proportions: ``(D, K)`` sizes of the clusters in each domain, the paper's B; uniform at first.
    """

    proportions: Tensor

    def __init__(
        self, counts: Sequence[int], n_clusters: int, settings: PCDSettings, device: torch.device
    ) -> None:
        super().__init__()
        uniform = torch.full((len(counts), n_clusters), 1.0 / n_clusters, device=device)
        self.register_buffer("proportions", uniform)
        self._counts, self._weights = counts, sample_weights(counts, device)
        self._worst_error = torch.zeros((), device=device)
        self._settings = settings

    def update_proportions(self, logits: Tensor, momentum: float) -> None:
        """Update the proportions with the logits ``(n, K)`` of a pooled batch, grouped by domain (Eq. 2).

        The momentum is the weight of the old proportions, beta.
        """
        stacked = stack_domains(logits, self._counts)
        self.proportions = update_proportions(self.proportions, stacked, self._weights, momentum)

    def loss(self, features: Tensor, prototypes: Tensor) -> Tensor:
        """Compute the transport cost of a pooled batch, averaged over domains (Eq. 1).

        Features are ``(n, d_f)``, grouped by domain, and prototypes ``(d_f, K)``.

        Returns:
            A scalar; zero, without solving anything, when the setting ``transport_weight`` is zero.

        Raises:
            InputError: features or prototypes are no longer finite.
        """
        if self._settings.transport_weight == 0:
            return features.new_zeros(())
        cost = stack_domains(cosine_cost(features, prototypes), self._counts)
        # The potentials of the last batch are no good start: they belong to other samples, and with them
        # the solver needs more iterations, not fewer.
        try:
            solution = solve_transport(
                cost,
                self._weights,
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
        """One sentence when a plan missed its marginals by more than the tolerance, else ``None``."""
        worst = float(self._worst_error)
        if worst <= self._settings.transport_tolerance:
            return None
        return (
            f"a transport plan missed its marginals by {worst:.2g} (transport_tolerance is "
            f"{self._settings.transport_tolerance:g}): raise transport_max_iterations or epsilon"
        )
