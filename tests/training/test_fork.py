"""Tests that a model which was opened before a fork answers in the child and, afterwards, in the parent."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ucds.encoders.find import find_graph
from ucds.encoders.spec import EDGES
from ucds.training.loaded import Model
from ucds.training.options import Compute

PICTURES = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)


def test_a_child_answers_as_its_parent_does(
    stored_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # a single thread would have nobody to wait for
    model = Model(stored_model(find_graph(EDGES), 3, 8), Compute("cpu", cache=None))
    before, context = model.transform(PICTURES), multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=lambda: answers.put(model.transform(PICTURES)))
    child.start()
    try:
        assert np.allclose(answers.get(timeout=60), before, atol=1e-5)
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert np.array_equal(model.transform(PICTURES), before)
