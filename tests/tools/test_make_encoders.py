"""Tests of the script that makes the encoders in the package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

import ucds.encoders
from ucds.encoders.graphs import GraphEncoder
from ucds.encoders.spec import EncoderSpec

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = spec_from_file_location("make_encoders", ROOT / "tools/make_encoders.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_filters_of_the_package_are_those_that_the_script_writes(script: Any) -> None:
    packaged = Path(ucds.encoders.__path__[0], "packaged/oriented_edges.onnx")
    assert script.oriented_edges() == packaged.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_the_graph_has_the_features_of_the_network_at_any_size(script: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = timm.create_model("mobilenetv2_100", num_classes=0).eval()
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    graph = script.mobilenetv2(tmp_path / "weights.safetensors")
    for size in (96, 64):
        images = torch.randn(2, 3, size, size)
        with torch.no_grad():
            wanted = network(images).numpy()
        found = GraphEncoder(graph, EncoderSpec("mobilenetv2", 1280, size), "made")(images.numpy())
        norms = np.linalg.norm(wanted, axis=1)
        assert (np.linalg.norm(found - wanted, axis=1) / norms).max() < 1e-5
