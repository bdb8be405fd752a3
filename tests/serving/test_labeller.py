"""A sample's label depends on the sample alone; and only source models are served."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from label_service import source_model
from serving_kit import WIDTH, FakeLabeller, K
from torch import nn

from ucds.backbones import module_backbone
from ucds.serving.labeller import Batcher, ModelLabeller


@pytest.fixture
def labeller() -> ModelLabeller:
    """Convolutions with random weights."""
    torch.manual_seed(1)
    first = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU())
    last = nn.Sequential(nn.Conv2d(32, 64, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = nn.Sequential(first, last)
    backbone = module_backbone(module, 64, input_size=28, mean=(0.5,) * 3, std=(0.2,) * 3)
    stored = source_model(backbone, K, recentres=True, unit_features=True)
    return ModelLabeller(stored, batch_size=8)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, 3, 32, 32), np.uint8)


def test_a_row_s_probabilities_are_the_same_to_the_bit_in_any_company(labeller: ModelLabeller) -> None:
    rows = images(64)
    alone = []
    for i, row in enumerate(rows):
        batch = np.zeros((8, *row.shape), np.uint8)
        batch[i % 8] = row
        alone.append(labeller._probabilities(batch)[i % 8])
    order = np.random.default_rng(0).permutation(64)
    together = torch.cat([labeller._probabilities(rows[order[i : i + 8]]) for i in range(0, 64, 8)])
    assert torch.equal(together, torch.stack(alone)[order])


def test_coalesced_requests_get_the_labels_of_single_ones(labeller: ModelLabeller) -> None:
    """The samples of every second request are seen from a mean of their own."""
    rows, label, gate = images(50), labeller.label, threading.Event()
    mean, batcher = labeller.mean(rows[:9]), Batcher(labeller)
    parts = pairwise((0, 1, 4, 20, 21, 50))
    requests = [(rows[a:b], a % 3, mean if a % 2 else None) for a, b in parts]
    single = [batcher.submit(row[None], *how).result() for part, *how in requests for row in part]
    alone = batcher.batches
    assert (alone, batcher.rows) == (50, 50)

    def wait_and_label(*arguments: Any) -> Any:
        gate.wait(20)
        return label(*arguments)

    labeller.label = wait_and_label  # type: ignore[method-assign]
    futures = [batcher.submit(*request) for request in requests]
    gate.set()
    found = np.concatenate([future.result() for future in futures])
    np.testing.assert_array_equal(found, np.concatenate(single))
    batcher.close()
    assert batcher.batches - alone <= 8  # one that had begun, and the others full
    assert batcher.rows == 100


def test_a_key_with_many_samples_delays_another_one_by_a_batch() -> None:
    labeller, done_after = FakeLabeller(), list[int]()
    labeller.gate.clear()
    batcher = Batcher(labeller)  # type: ignore[arg-type]
    many = batcher.submit(np.zeros((800, WIDTH), np.float32), 1)
    few = batcher.submit(np.ones((4, WIDTH), np.float32), 2)
    few.add_done_callback(lambda found: done_after.append(labeller.batches))
    labeller.gate.set()
    assert len(many.result()) == 800
    batcher.close()
    assert done_after[0] <= 2  # one that had begun, and one that they share
    assert labeller.batches >= 100
