"""Tests of running a grid: what it records, what it repeats, and what it does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid_kit import VARIANTS, small, write_pictures

from ucds.errors import UcdsWarning, UserError
from ucds.experiments.cells import UNFINISHED, group_cells
from ucds.experiments.jobs import VISIBLE
from ucds.experiments.preflight import Machine
from ucds.experiments.records import FILE, append_record, read_records
from ucds.experiments.runner import run_benchmark, visible_devices

pytestmark = pytest.mark.torch

FULL = {"tune": 'tune = "full"', "backbone": 'backbone = "test_resnet"\nimage_size = 32'}
"""A small network that is trained as a whole, so that its stages are saved."""

FAILING = """
from ucds.errors import UserError
from ucds.experiments.methods import METHODS

def fail(pipeline):
    found = METHODS["pcd"].run(pipeline)
    if pipeline.options.seed == 0:
        raise UserError("seed 0 is bad")
    return found

def do(pipeline):
    return METHODS["po"].run(pipeline)
"""


def cells_of(records: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(record["target"], record["seed"], record["method"]) for record in records]


def test_a_grid_leaves_a_self_contained_record_of_each_cell_and_runs_only_what_is_missing(
    tmp_path: Path, machine: Machine
) -> None:
    benchmark, path = small(tmp_path), tmp_path / "out" / FILE
    assert run_benchmark(benchmark, path.parent, machine) == 4
    records = read_records(path)
    assert sorted(cells_of(records)) == [("a", seed, name) for seed in (0, 1) for name in ("kmeans", "po")]
    settings = {cell.method: cell.settings for cell in benchmark.cells()}
    for record in records:
        own = settings[record["method"]]
        assert record["settings"] == (None if own is None else own.model_dump(mode="json"))
        assert record["settings_hash"] == ("none" if own is None else own.hash)
        assert record["samples"] == 12
        assert 0 <= record["accuracy"] <= 1
        assert record["versions"]["torch"]
        assert record.keys() >= {"time", "revision", "device", "threads", "precision", "seconds"}
        assert record.keys() >= {"backbone", "weights", "data", "subset", "start", "pooled_source"}
    assert {path.name for path in (tmp_path / "out").glob("[!.]*")} == {FILE}
    # One record is lost; what is run again comes out the same.
    (lost,) = [record for record in records if (record["seed"], record["method"]) == (1, "po")]
    path.unlink()
    for record in records:
        if record is not lost:
            append_record(path, record)
    before = path.read_bytes()
    assert run_benchmark(benchmark, path.parent, machine) == 1
    assert path.read_bytes().startswith(before)
    (*_, again) = read_records(path)
    for name in ("target", "seed", "method", "accuracy", "nmi"):
        assert again[name] == lost[name]


def test_a_grid_with_a_figure_of_features_records_them(tmp_path: Path, machine: Machine) -> None:
    more = '[[figures]]\nkind = "tsne"\n'
    asked = small(tmp_path, more, methods=["kmeans", "to", "pcd"], seeds=[0])
    run_benchmark(asked, tmp_path / "out", machine)
    records = {record["method"]: record for record in read_records(tmp_path / "out" / FILE)}
    assert "sample_points" not in records["kmeans"]
    for method in ("to", "pcd"):
        assert np.shape(records[method]["sample_points"]) == (12, 2)
        assert np.shape(records[method]["prototype_points"]) == (3, 2)
        assert sorted(records[method]["sample_classes"]) == 4 * [0] + 4 * [1] + 4 * [2]


def test_what_can_be_run_is_run_and_what_other_data_would_change_is_run_again(
    tmp_path: Path, machine: Machine
) -> None:
    asked = small(tmp_path, targets=["a", "c"], methods=["po"], seeds=[0])
    assert run_benchmark(asked, tmp_path, machine) == 1
    assert {record["target"] for record in read_records(tmp_path / FILE)} == {"a"}
    write_pictures(tmp_path / "data", ["c"])  # also one more source
    with pytest.warns(UcdsWarning, match="duplicate") as told:
        assert run_benchmark(asked, tmp_path, machine) == 2
    assert len(told) == 1  # although the images are opened again and again


SWEEP = '[[sweeps]]\nsetting = "ensemble_momentum"\nvalues = [0.6, 1.0]\n'


def test_variants_are_recorded_for_what_they_are(tmp_path: Path, machine: Machine) -> None:
    write_pictures(tmp_path / "data", ["a", "b", "c"])
    asked = small(tmp_path, VARIANTS + SWEEP, methods=["pcd"], seeds=[0])
    # The grid's own ensemble momentum is 0.6, so that one, and the grid again, need no run of their own.
    assert run_benchmark(asked, tmp_path, machine) == 6
    found = {record["variant"]: record for record in read_records(tmp_path / FILE)}
    assert list(found) == ["", "open", "ensemble_momentum = 1", "pooled", "part", "tail"]
    assert {name for name, record in found.items() if record["pooled_source"]} == {"pooled"}
    # Of 4 samples of the one class in three that is rare, int(0.3 * 4) are left.
    assert (found["part"]["samples"], found["part"]["subset"]) == (9, "imbalanced")
    assert found["part"]["true_proportions"] == pytest.approx([1 / 9, 4 / 9, 4 / 9], abs=1e-6)
    assert found["tail"]["samples"] == 8  # of 4 each, of which a rare class keeps two
    assert found["open"]["start"] == "source weights"
    assert list(found[""]["stage_seconds"]) == ["learn-source", "cluster-target", "refine-target"]
    assert run_benchmark(asked, tmp_path, machine) == 0


def test_cells_with_the_same_source_are_one_group(tmp_path: Path) -> None:
    asked = small(tmp_path, VARIANTS + SWEEP, methods=["to", "pcd"], seeds=[0])
    groups = group_cells(list(asked.cells()))
    named = [list(dict.fromkeys(cell.variant for cell in group)) for group in groups]
    assert named == [
        ["", "open", "the grid again", "ensemble_momentum = 0.6", "ensemble_momentum = 1"],
        ["pooled"],
        ["part"],
        ["tail"],
    ]


def test_a_provider_may_have_another_number_of_clusters(tmp_path: Path, machine: Machine) -> None:
    more = '[settings.consensus]\nstarts = 1\n[[variants]]\nname = "two"\nsource_clusters = 2\n'
    asked = small(tmp_path, more, methods=["po", "consensus-source"], seeds=[0])
    run_benchmark(asked, tmp_path, machine)
    found = {(r["variant"], r["method"]): r["clusters_in_use"] for r in read_records(tmp_path / FILE)}
    assert (found["", "consensus-source"], found["two", "consensus-source"]) == (3, 2)


def test_a_method_that_fails_is_told_and_the_others_are_recorded(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_method.py").write_text(FAILING)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = small(tmp_path, methods=["failing_method:fail", "failing_method:do", "po"], **FULL)
    with pytest.raises(UserError, match="1 of 6 cells failed.*failing_method:fail.*seed 0 is bad"):
        run_benchmark(asked, tmp_path, machine)
    kept = [path.parent.name[:12] for path in (tmp_path / UNFINISHED).glob("*/**/checkpoint.pt")]
    assert sorted(kept) == ["cluster-targ", "learn-source", "refine-targe"]  # a second try goes on from them
    assert cells_of(read_records(tmp_path / FILE)) == [
        ("a", 0, "po"),
        ("a", 0, "failing_method:do"),
        ("a", 1, "po"),
        ("a", 1, "failing_method:fail"),
        ("a", 1, "failing_method:do"),
    ]
    well = small(tmp_path, methods=["failing_method:fail", "po"], seeds=[1], **FULL)
    assert run_benchmark(well, tmp_path / "well", machine) == 2
    assert not (tmp_path / "well" / UNFINISHED).exists()


def test_the_devices_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv(VISIBLE, raising=False)
    assert visible_devices() == ["0", "1"]
    monkeypatch.setenv(VISIBLE, "GPU-b,GPU-a")
    assert visible_devices() == ["GPU-b", "GPU-a"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert visible_devices() == []
