"""Tests of `ucds.auditing.attacks`: distances, agreement, shadows, bags and edits against known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from audit_kit import HalfSpace

from ucds.auditing import attacks
from ucds.data.vectors import VectorSamples
from ucds.math.attack_scores import attack_success


def test_the_distance_to_a_plane_is_found_and_steps_bring_it_closer() -> None:
    subject, generator = HalfSpace(0.0), torch.Generator().manual_seed(0)
    rows = torch.tensor([0.5, 1.0, 2.0])[:, None].expand(3, 6).clone()
    labels = subject.ask(rows)
    options = {"smallest": 0.05, "bisections": 12, "doublings": 9, "directions": 6}
    plain = attacks.boundary_distances(subject, rows, labels, generator, **options)
    generator.manual_seed(0)
    close = attacks.boundary_distances(subject, rows, labels, generator, **options, steps=6, probes=60)
    exact = np.array([0.5, 1.0, 2.0])  # all entries must fall by as much
    assert (plain >= exact * 0.999).all()
    assert (close <= plain).all()
    np.testing.assert_allclose(close, exact, rtol=0.15)


def test_a_sample_whose_label_never_changes_has_the_largest_distance() -> None:
    subject, generator = HalfSpace(-1e9), torch.Generator().manual_seed(0)
    rows = torch.zeros(2, 3)
    found = attacks.boundary_distances(
        subject, rows, subject.ask(rows), generator, smallest=1.0, doublings=4, steps=1
    )
    np.testing.assert_array_equal(found, [16, 16])


def test_agreement_counts_the_copies_that_keep_their_label() -> None:
    samples = VectorSamples(np.array([[1.0, 1.0], [9.0, 9.0]]))
    subject = HalfSpace(0.0)
    down = [lambda rows, generator: rows - 5, lambda rows, generator: rows - 20, lambda rows, generator: rows]
    labels = subject.ask(samples.read(np.arange(2)))
    found = attacks.agreement_scores(
        subject, samples, labels, down, torch.Generator(), lambda *progress: None
    )
    np.testing.assert_allclose(found, [1 / 3, 2 / 3])
    assert subject.queries == 2 + 2 * 3


def test_shadows_find_the_samples_whose_labels_only_their_own_presence_explains() -> None:
    """Members have labels of a clustering that saw them, others labels without any sense."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((200, 12)).astype(np.float32)
    features[:100] += 4 * np.eye(12)[rng.integers(0, 8, 100)].astype(np.float32)
    labels = np.concatenate([features[:100, :8].argmax(1), rng.integers(0, 8, 100)])
    scores = attacks.shadow_scores(features, labels, 8, rng, 12)
    assert scores.shape == (200,)
    assert np.abs(scores).max() <= 1
    same = attacks.shadow_scores(features[:100], labels[:100], 8, np.random.default_rng(1), 12)
    chance = attack_success(same[:50], same[50:])
    assert chance.auc_low <= 0.5 <= chance.auc_high


def test_edits_of_images_do_what_they_say() -> None:
    image = torch.arange(2 * 3 * 8 * 8, dtype=torch.uint8).reshape(2, 3, 8, 8)
    generator = torch.Generator()
    assert torch.equal(attacks.flip(attacks.flip(image, generator), generator), image)
    moved = attacks.shift(2, -1)(image, generator)
    assert torch.equal(moved[:, :, 2:, :-1], image[:, :, :-2, 1:])
    assert torch.equal(moved[:, :, 0, :-1], image[:, :, 0, 1:])
    assert attacks.brighten(2.0)(torch.full((1, 3, 2, 2), 200, dtype=torch.uint8), generator).max() == 255
    flat = torch.full((1, 3, 4, 4), 7, dtype=torch.uint8)
    assert torch.equal(attacks.blur(flat, generator), flat)
    for variant in attacks.image_variants(12):
        copy = variant(image, generator)
        assert (copy.shape, copy.dtype) == (image.shape, torch.uint8)
        assert not torch.equal(copy, image)


def test_noise_on_vectors_grows_from_one_to_sixteen_spreads() -> None:
    rows, generator = torch.zeros(1, 20_000), torch.Generator().manual_seed(0)
    deviations = [float(variant(rows, generator).std()) for variant in attacks.vector_variants(3, 0.5)]
    assert deviations == pytest.approx([0.5, 2.0, 8.0], rel=0.03)


def test_a_bag_holds_samples_of_one_domain() -> None:
    bags = attacks.bag_scores(
        np.repeat([1.0, 2.0], [60, 30]), np.repeat([0, 1], [60, 30]), np.random.default_rng(0)
    )
    assert bags.tolist() == [1, 1, 2]
