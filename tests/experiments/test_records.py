"""Tests of records: appended, read back, and known again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grid_kit import record, small

from ucds.config import RECIPE_SETTINGS
from ucds.errors import UserError
from ucds.experiments.records import (
    alone,
    append_records,
    identity_in,
    identity_of,
    origin_of,
    read_records,
)


def test_records_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.jsonl"
    assert read_records(path) == []
    append_records(path, [{"a": 1}, {"a": 2}])
    before = path.read_bytes()
    append_records(path, [{"a": 3, "text": "ä\n"}])
    assert read_records(path) == [{"a": 1}, {"a": 2}, {"a": 3, "text": "ä\n"}]
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("torn", [b'{"a": 2, "b', b'{"a": 2}', b"\x00\x00", b'{"a": "\xc3'])
def test_a_torn_last_line_is_passed_over_and_replaced(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "runs.jsonl"
    append_records(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(torn)
    assert read_records(path) == [{"a": 1}]
    append_records(path, [{"a": 3}])
    assert read_records(path) == [{"a": 1}, {"a": 3}]


def test_a_file_with_nothing_but_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b'{"a"')
    assert read_records(path) == []
    append_records(path, [{"a": 1}])
    assert read_records(path) == [{"a": 1}]


@pytest.mark.parametrize("line", ["{half", "", "not json"])
def test_a_finished_line_that_is_no_record_is_an_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs.jsonl").write_text(f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    with pytest.raises(UserError, match="holds a line that is no record"):
        read_records(tmp_path / "runs.jsonl")


def test_one_process_at_a_time_fills_a_folder(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(UserError, match="another process is filling"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


VARIANTS = """
[[variants]]
name = "other settings"
settings = { epsilon = 0.5 }
[[variants]]
name = "pooled"
pooled_source = true
[[variants]]
name = "open"
start = "source weights"
[[variants]]
name = "part"
subset = "imbalanced"
[[variants]]
name = "transfer"
source_backbone = "resnet18"
[[variants]]
name = "random"
weights = "none"
[[variants]]
name = "the grid again"
"""


def test_cells_are_told_apart_by_what_they_do_and_not_by_their_names(tmp_path: Path) -> None:
    found = small(tmp_path, VARIANTS, methods='methods = ["pcd"]', seeds="seeds = [0]")
    identities = {cell.variant: identity_of(cell, {}) for cell in found.cells()}
    assert identities["the grid again"] == identities[""]
    assert len(set(identities.values())) == len(identities) - 1


def test_settings_of_a_baseline_tell_its_cells_apart(tmp_path: Path) -> None:
    found = small(tmp_path, methods='methods = ["iic", "pcd"]', seeds="seeds = [0]")
    iic, pcd = found.cells()
    other = {"iic": {"epochs": 3}}
    assert identity_of(iic, {}) != identity_of(iic, other)
    assert identity_of(pcd, {}) == identity_of(pcd, other)


def test_settings_that_a_method_does_not_look_at_tell_nothing_apart(tmp_path: Path) -> None:
    text = 'methods = ["kmeans", "iic", "po", "so", "to", "ao", "pcd", "consensus-source", "consensus-alone", "ucds"]'
    plain = small(tmp_path, methods=text, seeds="seeds = [0]")
    for name in RECIPE_SETTINGS:
        default = PCDSettings.model_fields[name].default
        value = {True: False, "guarded": "own"}.get(default, ["near"] if name == "spaces" else 1)
        other = plain.model_copy(update={"settings": {**plain.settings, name: value}})
        changed = {
            cell.method
            for cell, again in zip(plain.cells(), other.cells(), strict=True)
            if identity_of(cell, {}) != identity_of(again, {})
        }
        assert changed == {"consensus-source", "consensus-alone", "ucds"}


def test_a_record_of_the_first_version_belongs_to_the_plain_cell(tmp_path: Path) -> None:
    found = small(
        tmp_path,
        VARIANTS,
        methods='methods = ["pcd"]',
        seeds="seeds = [0]",
        targets='dataset = "office31"\ntargets = ["a"]',
    )
    plain = next(found.cells())
    old = record("pcd", "a", 0, 0.5, backbone="ucds/oriented_edges", settings=found.settings)
    del old["config"]["ensemble_momentum"]  # younger than the record
    matching = [c.variant for c in found.cells() if identity_of(c, {}) == identity_in(old, "office31")]
    assert matching == ["", "the grid again"]
    assert identity_in(old, "") != identity_of(plain, {})
    assert origin_of(old) == {"weights": "none", "source_weights": "none", "data": "aa"}


def belongs(values: dict[str, Any], config: PCDSettings, tmp_path: Path) -> bool:
    settings = {name: value for name, value in config.model_dump().items() if name != "tune"}
    found = small(tmp_path, methods='methods = ["pcd"]', seeds="seeds = [0]").model_copy(
        update={"settings": settings}
    )
    entry = record("pcd", "a", 0, 0.5, backbone="ucds/oriented_edges") | {"config": values}
    return identity_in(json.loads(json.dumps(entry)), "") == identity_of(next(found.cells()), {})


def test_records_belong_to_settings(tmp_path: Path) -> None:
    config = PCDSettings(epsilon=0.02)
    assert belongs(config.model_dump(), config, tmp_path)
    assert not belongs(config.model_dump(), PCDSettings(epsilon=0.03), tmp_path)


def test_settings_younger_than_a_record_had_their_defaults(tmp_path: Path) -> None:
    old = PCDSettings().model_dump()
    del old["ensemble_momentum"]
    assert belongs(old, PCDSettings(), tmp_path)
    assert not belongs(old, PCDSettings(ensemble_momentum=0.3), tmp_path)
    assert not belongs(old | {"forgotten": 1}, PCDSettings(), tmp_path)
