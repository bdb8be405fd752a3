"""Tests of tools/correct_records.py: records of earlier forms become what today's runs would write."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from ucds.config import ConsensusSettings, PCDSettings
from ucds.experiments.grid import Benchmark
from ucds.experiments.methods import METHODS
from ucds.experiments.records import identity_in, identity_of
from ucds.reports.table_rows import collect

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "correct_records.py"), run_name="tool")

FIRST_CONFIG = PCDSettings(tune="head").model_dump(mode="json")
"""The 28 entries of the first configuration."""

CONFIG = ConsensusSettings().model_dump(mode="json") | FIRST_CONFIG | {"recipe": "pcd"}
"""The 43 entries of the last configuration that all methods shared."""

FIGURES = {
    "accuracy": 0.5,
    "nmi": 0.25,
    "ari": 0.125,
    "seconds": 2.5,
    "time": "2026-11-20",
    "revision": "abc",
}


def first(method: str = "pcd") -> dict[str, Any]:
    """A record of the first form, which names neither data set nor encoder of the source."""
    where = {"backbone": "net", "weights": "file", "data": "aa", "target": "amazon", "seed": 0}
    return {"config": FIRST_CONFIG, "config_hash": "0" * 12, **where, "method": method, **FIGURES}


def last(method: str = "pcd", **more: Any) -> dict[str, Any]:
    """A record of the last form before settings belonged to methods."""
    named = {"dataset": "office31", "variant": "v", "source_backbone": "other", "source_weights": "else"}
    named |= {"random": False, "subset": "small", "pooled_source": True, "start": "source weights"}
    return first(method) | {"config": CONFIG, "baseline": None, "source_clusters": 7} | named | more


def test_the_configurations_are_those_of_their_times() -> None:
    assert (len(FIRST_CONFIG), len(CONFIG)) == (28, 43)


@pytest.mark.parametrize("method", ["po", "po-source", "so", "to", "ao", "pcd"])
def test_a_record_of_the_first_form_gets_the_values_of_its_time(method: str) -> None:
    found = TOOL["correct"](first(method), "office31")
    assert found["settings"] == FIRST_CONFIG
    assert found["settings_hash"] == "0" * 12
    assert found.items() >= FIGURES.items()
    assert not found.keys() & {"config", "config_hash", "baseline"}
    assert (found["dataset"], found["variant"], found["subset"]) == ("office31", "", "full")
    assert (found["source_backbone"], found["source_weights"]) == ("net", "file")
    assert (found["pooled_source"], found["random"], found["start"]) == (False, False, "pre-trained")
    assert (found["source_clusters"], found["image_size"]) == (None, None)


def test_digits_had_no_name_as_a_data_set() -> None:
    assert TOOL["correct"](first(), "digits")["dataset"] == ""


def test_what_a_record_names_is_kept() -> None:
    made = last()
    found = TOOL["correct"](made, "elsewhere")
    gone = {"config", "config_hash", "baseline"}
    assert made.keys() - found.keys() == gone
    assert {name: found[name] for name in made.keys() - gone} == {n: made[n] for n in made.keys() - gone}


@pytest.mark.parametrize(
    ("before", "after"),
    [("ucds", "consensus"), ("ucds-alone", "consensus-alone"), ("ucds-source", "consensus-source")],
)
def test_the_consensus_method_has_its_name_and_its_settings(before: str, after: str) -> None:
    found = TOOL["correct"](last(before), "office31")
    assert found["method"] == after
    assert found["settings"] == {name: CONFIG[name] for name in ConsensusSettings.model_fields}


@pytest.mark.parametrize("method", ["deepcluster", "iic", "acids", "iic-original"])
def test_a_baseline_has_its_own_settings_and_those_of_its_model(method: str) -> None:
    kind = METHODS[method].settings
    assert kind is not None
    model = {"tune": "head", "bottleneck_width": 256, "prediction_batch_size": 64}
    own = {name: value for name, value in kind().model_dump(mode="json").items() if name not in model}
    assert TOOL["correct"](last(method, baseline=own), "office31")["settings"] == own | model


def test_kmeans_had_five_starts() -> None:
    assert TOOL["correct"](last("kmeans"), "office31")["settings"] == {"restarts": 5}


def test_a_corrected_record_belongs_to_the_cell_of_today() -> None:
    methods = ["kmeans", "pcd"]
    grid = {"backbone": "net", "targets": {"office31": ["amazon"]}, "methods": methods, "seeds": [0]}
    asked = Benchmark(**{"title": "T", "grid": grid, "settings": {"tune": "head"}})
    corrected = [TOOL["correct"](first(method), "office31") for method in methods]
    assert [identity_in(record) for record in corrected] == [identity_of(cell) for cell in asked.cells()]
    assert len(collect(asked, corrected).used) == 2


def test_files_are_corrected_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "office31-head" / "runs.jsonl"
    path.parent.mkdir()
    made = [first(), last("ucds"), last("kmeans"), first("to")]
    path.write_text("".join(json.dumps(record) + "\n" for record in made))
    TOOL["main"]([path])
    once = path.read_bytes()
    assert [json.loads(line) for line in once.splitlines()] == [TOOL["correct"](r, "office31") for r in made]
    TOOL["main"]([path])
    assert path.read_bytes() == once
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in said] == ["4 of 4 records corrected", "0 of 4 records corrected"]
