from __future__ import annotations

import numpy as np
import pytest
import torch

from ucds.math.mixing import mix


def images(n: int = 8, side: int = 16) -> torch.Tensor:
    """Every image is constant, so that a pixel tells which image it came from."""
    return torch.arange(n, dtype=torch.float32).view(n, 1, 1, 1).expand(n, 3, side, side).clone()


@pytest.mark.parametrize("seed", range(20))
def test_cutmix_pastes_one_box_of_the_partner_and_reports_its_area(seed: int) -> None:
    batch = images()
    mixture = mix(batch, 1.0, np.random.default_rng(seed))
    pasted = mixture.inputs != batch
    for i, j in enumerate(mixture.partner.tolist()):
        found = set(mixture.inputs[i].unique().tolist())
        assert found <= {float(i), float(j)}
        if i != j:
            share = pasted[i].float().mean().item()
            assert share == pytest.approx(1.0 - mixture.ratio, abs=1e-6)
            rows, columns = pasted[i, 0].any(1), pasted[i, 0].any(0)
            assert pasted[i, 0].sum() == rows.sum() * columns.sum()  # a rectangle


def test_pairs_are_a_permutation() -> None:
    mixture = mix(images(), 0.3, np.random.default_rng(0))
    assert sorted(mixture.partner.tolist()) == list(range(8))


def test_the_batch_itself_is_left_alone() -> None:
    batch = images()
    mix(batch, 1.0, np.random.default_rng(3))
    torch.testing.assert_close(batch, images())


def test_mixup_interpolates_vectors() -> None:
    vectors = torch.randn(6, 5)
    mixture = mix(vectors, 0.3, np.random.default_rng(1))
    expected = mixture.ratio * vectors + (1 - mixture.ratio) * vectors[mixture.partner]
    torch.testing.assert_close(mixture.inputs, expected)


def test_targets_are_mixed_alike_and_without_gradient() -> None:
    mixture = mix(torch.randn(4, 2), 1.0, np.random.default_rng(2))
    targets = torch.eye(4, requires_grad=True)
    mixed = mixture.mix_targets(targets)
    assert not mixed.requires_grad
    torch.testing.assert_close(mixed.sum(1), torch.ones(4))
    torch.testing.assert_close(
        mixed, mixture.ratio * torch.eye(4) + (1 - mixture.ratio) * torch.eye(4)[mixture.partner]
    )


def test_ratios_follow_the_beta_distribution() -> None:
    vectors = torch.zeros(2, 1)
    ratios = np.array([mix(vectors, 0.3, np.random.default_rng(s)).ratio for s in range(3000)])
    # Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)).
    assert ratios.mean() == pytest.approx(0.5, abs=0.03)
    assert ratios.var() == pytest.approx(1 / (4 * 1.6), abs=0.01)


@pytest.mark.parametrize("shape", [(4,), (4, 3, 5)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="images"):
        mix(torch.zeros(shape), 0.3, np.random.default_rng(0))


def test_a_concentration_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        mix(torch.zeros(2, 2), 0.0, np.random.default_rng(0))
