from __future__ import annotations

import pytest
import torch

from ucds.math.domains import sample_weights, stack_domains


def test_rows_are_stacked_by_domain_and_padded_with_zero() -> None:
    values = torch.arange(1.0, 6.0).unsqueeze(1)
    stacked = stack_domains(values, (2, 3))
    torch.testing.assert_close(stacked[..., 0], torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]]))


def test_weights_are_even_within_a_domain_and_zero_in_the_padding() -> None:
    torch.testing.assert_close(sample_weights((2, 4)), torch.tensor([[0.5, 0.5, 0, 0], [0.25] * 4]))
    torch.testing.assert_close(sample_weights((3,)), torch.full((1, 3), 1 / 3))


def test_gradients_flow_back_to_the_rows() -> None:
    values = torch.randn(5, 2, requires_grad=True)
    stack_domains(values, (1, 4)).sum().backward()
    torch.testing.assert_close(values.grad, torch.ones(5, 2))


def test_bad_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="add up"):
        stack_domains(torch.zeros(3, 1), (1, 1))
    with pytest.raises(ValueError, match="at least one"):
        sample_weights((2, 0))
