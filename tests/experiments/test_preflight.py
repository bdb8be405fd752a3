"""Tests of the look before the run: what is missing is said of each cell, and what to put where."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from grid_kit import make_machine, small, write_pictures

from ucds.errors import UserError
from ucds.experiments.grid import Benchmark
from ucds.experiments.preflight import (
    Machine,
    Survey,
    decode_all,
    encoders_of,
    make_encoder,
    open_inputs,
    read_weights,
    survey,
)
from ucds.networks import graph
from ucds.networks.weight_files import REMEDY
from ucds.training.options import EncoderOptions
from ucds.training.progress import Reporter

pytestmark = pytest.mark.torch


def test_weights_for_all_and_for_one_encoder(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.pt"
    odd.touch()
    assert read_weights([]) == {}
    assert read_weights(["none"]) == {"": "none"}
    assert read_weights(["resnet18=r.pt", "all.pt"]) == {"resnet18": "r.pt", "": "all.pt"}
    assert read_weights([str(odd)]) == {"": str(odd)}
    for twice in (["a.pt", "b.pt"], ["n=a.pt", "n=b.pt"]):
        with pytest.raises(UserError, match="`weights` is given twice for "):
            read_weights(twice)


def looked_at(asked: Benchmark, machine: Machine) -> tuple[Survey, list[str]]:
    """What is found of a benchmark, and the lines that are said of what is missing."""
    reporter = mock.Mock(spec=Reporter)
    found = survey(asked, replace(machine, compute=replace(machine.compute, reporter=reporter)))
    return found, [call.args[0] for call in reporter.say.mock_calls]


def test_nothing_is_missing(tmp_path: Path) -> None:
    asked, machine = small(tmp_path), make_machine(tmp_path)
    found, said = looked_at(asked, machine)
    assert (said, found.faults) == ([], {})
    cells = list(asked.cells())
    decode_all(cells, found, machine)
    weights, (data,) = found.weights[EncoderOptions("ucds/oriented_edges")], set(found.data.values())
    assert found.origin(cells[0]) == {"weights": weights, "source_weights": weights, "data": data}
    assert len(data) == 16


def test_a_precision_that_no_cell_would_use_is_refused(tmp_path: Path) -> None:
    asked, machine = small(tmp_path), make_machine(tmp_path)
    machine = replace(machine, compute=replace(machine.compute, precision="bf16-mixed"))
    plain = asked.grid.model_copy(update={"methods": ("kmeans",)})
    with pytest.raises(UserError, match="nothing can be run: `precision=.*` has no effect here: "):
        looked_at(asked.model_copy(update={"grid": plain, "settings": {}}), machine)
    assert not looked_at(asked, machine)[0].faults  # PO is a network


def test_a_missing_target_data_set_or_package_costs_its_own_cells_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    write_pictures(tmp_path / "data" / "shapes")
    targets = 'targets = { shapes = ["a", "c"], pacs = ["photo"] }'
    asked = small(tmp_path, targets=targets, methods=["po", "umap"])
    found, (package, target, data) = looked_at(asked, Machine(tmp_path / "data", {"": "none"}))
    assert target.startswith("missing, 4 cells (po, umap on shapes c): ")
    assert target.endswith("has no domain c")
    assert data.startswith("missing, 4 cells (po, umap on pacs photo): PACS is incomplete")
    assert package.startswith("missing, 2 cells (umap on shapes a): ")
    assert "pip install 'ucds[umap]'" in package
    fit = {(cell.dataset, cell.target, cell.method) for cell in asked.cells() if found.fault(cell) is None}
    assert fit == {("shapes", "a", "po")}


def test_a_missing_encoder_costs_the_cells_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(name: str, weights: str, *more: Any) -> object:
        assert weights == "default"
        raise UserError(f"pre-trained weights of '{name}': not in the cache; {REMEDY}")

    monkeypatch.setattr(graph, "graph_of", offline)
    more = '[[variants]]\nname = "v"\nsource_backbone = "resnet18"\nmethods = ["po", "so", "pcd"]\n'
    asked = small(tmp_path, more, seeds=[0])
    machine = replace(make_machine(tmp_path), weights={"ucds/oriented_edges": "none"})
    found, said = looked_at(asked, machine)
    assert said == [
        "missing, 2 cells (so [v], pcd [v] on a): pre-trained weights of 'resnet18': not in the cache; "
        + REMEDY.replace("`weights`", "`weights=resnet18=FILE`")
    ]
    fit = [(cell.variant, cell.method) for cell in asked.cells() if found.fault(cell) is None]
    assert fit == [("", "kmeans"), ("", "po"), ("v", "po")]


def test_an_image_size_of_ones_own_reaches_samples_and_encoder(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    asked = small(tmp_path, seeds="seeds = [0]\nimage_size = 48")
    cell = next(iter(asked.cells()))
    assert make_encoder(cell.condition.target, machine).spec.input_size == 48
    found = survey(asked, machine)
    data = open_inputs(found.located[""], cell.condition.target, machine, machine.compute)
    assert data.view.input_shape == (3, 48, 48)
    assert data.samples.read(np.arange(1)).shape == (1, 3, 55, 55)  # 48 * 256 / 224


def test_data_without_classes_cannot_be_scored(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    (tmp_path / "data" / "a" / "x" / "0.png").rename(tmp_path / "data" / "a" / "loose.png")
    with pytest.raises(UserError, match="nothing can be run: .* no class folders to score against"):
        survey(small(tmp_path), machine)


def test_the_encoders_that_a_method_needs(tmp_path: Path) -> None:
    methods = ["kmeans", "po-source", "so", "pcd", "acids", "iic", "iic-original"]
    more = '[[variants]]\nname = "v"\nsource_backbone = "resnet18"\n'
    cells = [cell for cell in small(tmp_path, more, methods=methods).cells() if cell.variant]
    own, other = EncoderOptions("ucds/oriented_edges"), EncoderOptions("resnet18")
    assert {cell.method: encoders_of(cell) for cell in cells} == {
        "kmeans": [own],
        "po-source": [other],
        "so": [other],
        "pcd": [other, own],
        "acids": [other],
        "iic": [own],
        "iic-original": [],
    }


def test_weights_of_its_own_win_over_those_for_all_encoders(tmp_path: Path) -> None:
    encoder = EncoderOptions("ucds/oriented_edges")
    for given in ({"": "none"}, {"": "a.pt", "ucds/oriented_edges": "none"}):
        found = make_encoder(encoder, Machine(tmp_path, given)).weights
        assert found == "none (fixed filters)"
    with pytest.raises(UserError, match=r"a\.pt"):
        make_encoder(encoder, Machine(tmp_path, {"": "a.pt", "resnet18": "none"}))
