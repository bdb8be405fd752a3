"""Tests that a model which was opened before a fork answers in the child and, afterwards, in the parent."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ucds.networks.build import build_backbone
from ucds.training.encoding import run_onnx, write_onnx
from ucds.training.loaded import Model
from ucds.training.options import Compute

PICTURES = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)


def _by_torch(stored_model: Callable[..., Model]) -> Callable[[], np.ndarray]:
    model = Model(stored_model(build_backbone("ucds/oriented_edges"), 3, 8), Compute("cpu", cache=None))
    return lambda: model.transform(PICTURES)


def _by_graph(stored_model: Callable[..., Model]) -> Callable[[], np.ndarray]:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    pixels = torch.from_numpy(PICTURES).permute(0, 3, 1, 2).float()
    graph = write_onnx(network.eval(), pixels[:2])
    return lambda: run_onnx(graph, pixels.numpy())[0]


@pytest.mark.parametrize("make", [_by_torch, _by_graph])
def test_a_child_answers_as_its_parent_does(
    make: Callable[..., Callable[[], np.ndarray]], stored_model: Callable[..., Model]
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(4)  # a single thread would have nobody to wait for
    try:
        ask = make(stored_model)
        before, context = ask(), multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=lambda: answers.put(ask()))
        child.start()
        try:
            assert np.allclose(answers.get(timeout=60), before, atol=1e-5)
            child.join(60)
            assert child.exitcode == 0
        finally:
            child.kill()
        assert np.array_equal(ask(), before)
    finally:
        torch.set_num_threads(threads)
