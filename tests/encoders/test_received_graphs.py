"""Tests that a run, or a folder of features, whose graph somebody changed ends in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_kit import means, transformer
from test_graphs import GIANTS, REFUSED

import ucds
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec
from ucds.training.model_file import save_model

PICTURES = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
SPEC = EncoderSpec("means.onnx", 6, 16)
HOSTILE: dict[str, tuple[bytes, EncoderSpec, str]] = {
    "a vendor's operator": (REFUSED["an operator of a vendor"][0], SPEC, "not one of the ONNX standard"),
    "a giant": (GIANTS["a constant"], SPEC, "needs more than 4 GiB of memory"),
    "another width": (means(), EncoderSpec("means.onnx", 7, 16), "returns features of shape"),
    "an output that is not there": (means(), EncoderSpec("m", 6, 16, output="y"), "cannot compute it"),
    "images of another size": (means(size=24), SPEC, "cannot compute it"),
    "tokens without pooling": (
        transformer("last_hidden_state"),
        EncoderSpec("t", 3, 16),
        "returns features of shape",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_changed_graph_in_a_run_ends_in_one_line(
    what: str, stored_model: Callable[..., Any], tmp_path: Path
) -> None:
    content, spec, reason = HOSTILE[what]
    save_model(tmp_path, stored_model(GraphEncoder(content, spec, "given"), 3, 4))
    model = ucds.load(tmp_path, compute=ucds.Compute(cache=None))
    with pytest.raises(ucds.UserError, match=reason) as refusal:
        model.predict(PICTURES)
    assert "\n" not in str(refusal.value)


def test_an_unchanged_graph_in_a_run_computes(stored_model: Callable[..., Any], tmp_path: Path) -> None:
    save_model(tmp_path, stored_model(GraphEncoder(means(), SPEC, "given"), 3, 4))
    assert ucds.load(tmp_path, compute=ucds.Compute(cache=None)).predict(PICTURES).shape == (5,)
