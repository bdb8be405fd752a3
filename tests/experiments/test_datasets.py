"""Tests of finding data sets, and of the words when they are not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ucds.errors import UserError
from ucds.experiments.datasets import KNOWN, locate


def make(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
    return root


OFFICE = ("amazon", "dslr", "webcam")


def test_the_folder_itself_or_one_in_it(tmp_path: Path) -> None:
    inner = make(tmp_path / "office31", OFFICE)
    for given in (inner, tmp_path):
        found = locate(given, "office31", ["webcam"])
        assert found.path == inner
        assert found.domains == ["amazon", "dslr", "webcam"]
        assert found.folders["webcam"] == "webcam"


def test_case_spaces_and_hyphens_do_not_matter(tmp_path: Path) -> None:
    inner = make(tmp_path / "Office-Home", ["Art", "clipart", "Product", "RealWorld"])
    found = locate(tmp_path, "officehome", ["Real World", "Clipart"])
    assert found.path == inner
    assert found.folders == {
        "Art": "Art",
        "Clipart": "clipart",
        "Product": "Product",
        "Real World": "RealWorld",
    }


def test_a_wrapper_is_stepped_into_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    inner = make(tmp_path / "PACS" / "kfold", ["art_painting", "cartoon", "photo", "sketch", "splits"])
    for given in (tmp_path, tmp_path / "PACS", inner):
        found = locate(given, "pacs", ["photo"])
        assert found.path == inner
        assert found.domains == ["art_painting", "cartoon", "photo", "sketch"]


def test_the_right_one_of_several(tmp_path: Path) -> None:
    make(tmp_path / "office31", OFFICE)
    make(tmp_path / "PACS", KNOWN["pacs"].layout.counts)
    assert locate(tmp_path, "pacs", ["photo"]).path == tmp_path / "PACS"
    assert locate(tmp_path, "office31", ["amazon"]).path == tmp_path / "office31"


def test_what_is_missing_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"PACS is not whole.*no domain photo, .*put it at .*PACS/\[kfold/\]<"
    ):
        locate(tmp_path, "pacs", ["photo"])
    make(tmp_path / "office31", ["amazon", "webcam"])
    with pytest.raises(UserError, match=r"no domain dslr; put it at .*office31/<domain>"):
        locate(tmp_path, "office31", ["amazon"])
    with pytest.raises(UserError, match="no domain amazon, dslr, webcam; put it at .*absent/office31/<"):
        locate(tmp_path / "absent", "office31", ["amazon"])


def test_a_data_set_that_nobody_knows(tmp_path: Path) -> None:
    make(tmp_path, ["neon", "paper", "chalk"])
    found = locate(tmp_path, "", ["neon", "ink"])
    assert found.path == tmp_path
    assert found.domains is None
    assert found.folders == {"neon": "neon"}
    with pytest.raises(UserError, match="no domain ink: it needs one folder a domain"):
        locate(tmp_path, "", ["ink"])


def test_an_unknown_data_set_by_its_name(tmp_path: Path) -> None:
    make(tmp_path / "my-scans", ["north", "south"])
    assert locate(tmp_path, "my scans", ["north"]).path == tmp_path / "my-scans"
