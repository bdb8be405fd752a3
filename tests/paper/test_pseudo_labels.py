"""Label smoothing and the temporal ensemble against values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from ucds.math.pseudo_labels import smooth_labels, temporal_ensemble


def test_smoothing_by_hand() -> None:
    smoothed = smooth_labels(torch.tensor([2, 0]), 4, 0.1)
    torch.testing.assert_close(
        smoothed, torch.tensor([[0.025, 0.025, 0.925, 0.025], [0.925, 0.025, 0.025, 0.025]])
    )


def test_no_smoothing_gives_one_hot_rows() -> None:
    torch.testing.assert_close(smooth_labels(torch.tensor([1]), 2, 0.0), torch.tensor([[0.0, 1.0]]))


@pytest.mark.parametrize("labels", [[3], [-1]])
def test_labels_out_of_range_are_refused(labels: list[int]) -> None:
    with pytest.raises(ValueError, match="range|lie in"):
        smooth_labels(torch.tensor(labels), 3, 0.1)


def test_ensemble_by_hand() -> None:
    targets = torch.tensor([[0.9, 0.1]])
    predictions = torch.tensor([[0.2, 0.8]])
    torch.testing.assert_close(temporal_ensemble(targets, predictions, 0.6), torch.tensor([[0.62, 0.38]]))


def test_ensemble_forgets_geometrically() -> None:
    targets = torch.tensor([[1.0, 0.0]])
    for _ in range(10):
        targets = temporal_ensemble(targets, torch.tensor([[0.0, 1.0]]), 0.6)
    assert targets[0, 0].item() == pytest.approx(0.6**10)


def test_momentum_one_keeps_the_providers_labels() -> None:
    targets = smooth_labels(torch.tensor([0, 1]), 3, 0.1)
    torch.testing.assert_close(temporal_ensemble(targets, torch.rand(2, 3), 1.0), targets)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        temporal_ensemble(torch.ones(2, 3), torch.ones(3, 3), 0.6)
    with pytest.raises(ValueError, match="momentum"):
        temporal_ensemble(torch.ones(2, 3), torch.ones(2, 3), -0.1)
    with pytest.raises(ValueError, match="smoothing"):
        smooth_labels(torch.tensor([0]), 3, 2.0)
