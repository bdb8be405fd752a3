"""The four losses of the paper's method: tensors in, a scalar out.

All are means over the batch they are given. With several processes the caller gives the pooled
batch, because the marginal entropy is not linear in its samples.
"""

from __future__ import annotations

from torch import Tensor

from ucds.math.precision import at_least_single


def transport_loss(cost: Tensor, plan: Tensor) -> Tensor:
    """Compute the cost of moving the data onto the prototypes by a fixed plan, averaged over domains (Eq. 1).

    The entropy of the plan does not depend on the model once the plan is held fixed, so it is left out.

    Args:
        cost: ``(D, m, K)`` costs, differentiable.
        plan: ``(D, m, K)`` transport plan, held constant; zero in padding rows.
    """
    return (plan.detach() * cost).sum((-2, -1)).mean()


def mutual_information_loss(logits: Tensor) -> Tensor:
    """Compute the negative mutual information of samples and cluster labels, in nats (Eq. 3).

    ``-(H(mean_j p_j) - mean_j H(p_j))``: lowest, at ``-log K``, when every sample is certain of its
    cluster and all clusters are equally large; zero when labels tell nothing about samples.

    Args:
        logits: ``(n, K)`` logits of the predictions.
    """
    log_p = at_least_single(logits).log_softmax(-1)
    p = log_p.exp()
    conditional = -(p * log_p).sum(-1).mean()
    # The mean probability of a dead cluster can underflow to 0, where p log p has limit 0 but log has none.
    mean = p.mean(0)
    marginal = -(mean * mean.clamp_min(1e-30).log()).sum()
    return conditional - marginal


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the cross-entropy against soft targets, the CutMix term ``L(G(x~), y~)``.

    Args:
        logits: ``(n, K)`` logits of the mixed samples.
        targets: ``(n, K)`` mixed predictions; no gradient flows into them.
    """
    return -(targets.detach() * at_least_single(logits).log_softmax(-1)).sum(-1).mean()


def distillation_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the distance of the model's predictions from the targets, ``KL(y || G(x))``, in nats.

    Args:
        logits: ``(n, K)`` logits of the model.
        targets: ``(n, K)`` probabilities; zeros are allowed, no gradient flows into them. A row of zeros
            means "no target": the loss is the mean over the other rows, and zero without any.
    """
    targets = targets.detach()
    negative_entropy = (targets * targets.clamp_min(1e-30).log()).sum(-1).mean()
    # A row of zeros adds nothing to the two means over all rows. Scaled by 1, exactly, when there is none.
    scale = len(targets) / targets.any(-1).sum().clamp_min(1)
    return scale * (negative_entropy + soft_cross_entropy(logits, targets))
