"""Tests of records: appended, read back, and known again."""

import json
from pathlib import Path
from typing import Any

import pytest
from grid_kit import VARIANTS, record, small

from ucds.config import ConsensusSettings
from ucds.errors import UserError
from ucds.experiments.grid import read_benchmark
from ucds.experiments.methods import METHODS
from ucds.experiments.records import (
    append_record,
    describe,
    identity,
    lock_records,
    read_records,
    settings_hash,
)

pytestmark = pytest.mark.torch

ONE, TWO, THREE = (record("po", "a", seed, 0.5) for seed in (1, 2, 3))


def test_records_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.jsonl"
    assert read_records(path) == []
    append_record(path, ONE)
    append_record(path, TWO)
    before = path.read_bytes()
    append_record(path, THREE | {"text": "ä\n"})
    assert read_records(path) == [ONE, TWO, THREE | {"text": "ä\n"}]
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("finished", [[], [ONE]])
def test_a_torn_last_line_is_passed_over_and_replaced(tmp_path: Path, finished: list[dict[str, Any]]) -> None:
    for number, torn in enumerate((b'{"a": 2, "b', b'{"a": 2}', b"\x00\x00", b'{"a": "\xc3')):
        path = tmp_path / f"{number}.jsonl"
        for known in finished:
            append_record(path, known)
        with path.open("ab") as file:
            file.write(torn)
        assert read_records(path) == finished
        append_record(path, THREE)
        assert read_records(path) == [*finished, THREE]


@pytest.mark.parametrize("line", ["{half", "", "[1]", '{"accuracy": 0.5}'])
def test_a_finished_line_that_is_no_record_is_an_error(tmp_path: Path, line: str) -> None:
    whole = json.dumps(ONE)
    (tmp_path / "runs.jsonl").write_text(f"{whole}\n{line}\n{whole}\n")
    with pytest.raises(UserError, match="holds a line that cannot be read as a record"):
        read_records(tmp_path / "runs.jsonl")


def test_one_process_at_a_time_fills_a_folder(tmp_path: Path) -> None:
    with (
        lock_records(tmp_path),
        pytest.raises(UserError, match="another process is filling"),
        lock_records(tmp_path),
    ):
        pass
    with lock_records(tmp_path):
        pass


MANY = f"""{VARIANTS}
[[variants]]
name = "other settings"
settings.pcd.epsilon = 0.5
[[variants]]
name = "transfer"
source_backbone = "resnet18"
"""


def test_cells_are_told_apart_by_what_they_do_and_not_by_their_names(tmp_path: Path) -> None:
    found = small(tmp_path, MANY, methods=["pcd"], seeds=[0])
    identities = {cell.variant: identity(describe(cell)) for cell in found.cells()}
    assert identities["the grid again"] == identities[""]
    assert len(set(identities.values())) == len(identities) - 1


EVERY = (
    *("kmeans", "iic", "po", "so", "to", "ao", "pcd"),
    *("consensus-source", "consensus-alone", "consensus"),
)


@pytest.mark.parametrize(
    ("settings", "looking"),
    [
        ({"iic": {"epochs": 3}}, {"iic"}),
        ({"pcd": {"epsilon": 0.5}}, {"po", "so", "to", "ao", "pcd"}),
        ({"consensus": {"starts": 3}}, {"consensus-source", "consensus-alone", "consensus"}),
    ],
)
def test_settings_tell_the_cells_apart_whose_method_looks_at_them(
    tmp_path: Path, settings: dict[str, Any], looking: set[str]
) -> None:
    plain = small(tmp_path, methods=EVERY, seeds=[0])
    other = plain.model_copy(update={"settings": {**plain.settings, **settings}})
    one, two = ({cell.method: identity(describe(cell)) for cell in asked.cells()} for asked in (plain, other))
    assert {method for method in EVERY if one[method] != two[method]} == looking


RECORDED = sorted((Path(__file__).parents[2] / "results").glob("*/runs.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_a_record_is_the_same_after_a_setting_was_added_that_changes_nothing_by_default(path: Path) -> None:
    """Records that lack such a setting, as they were made before, are those of the same cells."""
    for made in read_records(path):
        kind = METHODS[made["method"]].settings
        if kind is None:
            continue
        usual = kind(**kind.earlier).model_dump(mode="json")
        plain = {name: value for name, value in made["settings"].items() if usual.get(name) != value}
        assert identity(made | {"settings": plain}) == identity(made)
        assert identity(made | {"settings": usual | plain}) == identity(made)
        assert settings_hash(made | {"settings": plain}) == settings_hash(made)
        for name in plain:
            other = {key: value for key, value in plain.items() if key != name}
            assert identity(made | {"settings": other}) != identity(made)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_the_records_of_results_are_those_of_the_cells_of_their_files(path: Path) -> None:
    """So ``benchmark --resume`` runs none of them again, but for methods that have changed since."""
    config = path.parents[2] / "configs" / f"{path.parent.name}.toml"
    cells = {identity(describe(cell)) for cell in read_benchmark(config).cells()}
    strange = {made["method"] for made in read_records(path) if identity(made) not in cells}
    assert not {name for name in strange if METHODS[name].settings is not ConsensusSettings}


def test_a_setting_whose_default_changes_something_tells_records_apart_that_lack_it(tmp_path: Path) -> None:
    cells = small(tmp_path, methods=["po", "consensus-alone"], seeds=[0]).cells()
    now = next(describe(cell) for cell in cells if cell.method == "consensus-alone")
    before = {name: value for name, value in now["settings"].items() if name != "second_opinion"}
    off = now["settings"] | {"second_opinion": now["settings"]["second_opinion"] | {"draws": 0}}
    assert identity(now | {"settings": before}) == identity(now | {"settings": off}) != identity(now)
