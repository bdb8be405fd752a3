"""Tests of cells that hold no path: each is one image that is skipped and listed, and costs no run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from ucds.data.images import ImageSamples
from ucds.data.sources import find_samples
from ucds.errors import InputError, UcdsWarning

GOOD = ("a.png", "b.png")
CELLS: dict[str, tuple[Any, Any]] = {
    "nothing": ("", ""),
    "spaces": ("  ", "\t"),
    "a missing value": (None, None),
    "not a number": (math.nan, float("nan")),
    "words of libraries": ("nan", "<NA>"),
    "the folder itself": (".", "./"),
    "a folder": ("sub", "sub/"),
    "NUL": ("a\0", "b\0"),
}


def csv(place: Path, cells: Sequence[Any]) -> Any:
    rows = "\n".join(f'{row},"{"" if cell is None else cell}"' for row, cell in enumerate(cells))
    (place / "t.csv").write_text(f"id,path\n{rows}\n")
    return place / "t.csv"


def parquet(place: Path, cells: Sequence[Any]) -> Any:
    texts = [None if cell is None or cell != cell else str(cell) for cell in cells]
    ids = list(map(str, range(len(texts))))
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "path": texts}), place / "t.parquet")
    return place / "t.parquet"


FORMS: dict[str, Callable[[Path, Sequence[Any]], Any]] = {
    "CSV": csv,
    "parquet": parquet,
    "frame": lambda place, cells: pandas.DataFrame({"path": cells}),
    "rows": lambda place, cells: [{"image_path": cell} for cell in cells],
    "list": lambda place, cells: list(cells),
}


@pytest.mark.parametrize(
    ("form", "cells"),
    [
        (form, cells)
        for form in FORMS
        for cells in CELLS
        if cells != "NUL" or form in ("CSV", "parquet")  # in other forms the paths are ids, which hold none
    ],
)
def test_cells_without_a_file_cost_no_run(
    form: str, cells: str, tmp_path: Path, write_images: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(tmp_path, GOOD, 0)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    one, other = CELLS[cells]
    found = find_samples(FORMS[form](tmp_path, [GOOD[0], one, other, GOOD[1]]), by_domain=False)
    with pytest.warns(UcdsWarning) as told:
        samples = ImageSamples(found, tmp_path / "cache", size=16)
    assert samples.kept.tolist() == [0, 3]
    assert len(samples.listed) == 4
    skipped = [str(one.message) for one in told if "it is skipped" in str(one.message)]
    assert len(skipped) == 2
    if cells in ("nothing", "spaces", "a missing value", "not a number", "words of libraries"):
        assert [f"row {row} (no path)" in text for row, text in zip((1, 2), skipped, strict=True)] == [1, 1]


def test_rows_with_ids_may_name_one_file(tmp_path: Path, write_images: Any) -> None:
    write_images(tmp_path, GOOD, 0)
    found = find_samples(csv(tmp_path, [GOOD[0], GOOD[1], GOOD[0]]), by_domain=False)
    with pytest.warns(UcdsWarning, match="1 of 3 images duplicates another"):
        samples = ImageSamples(found, tmp_path / "cache", size=16)
    assert list(samples.ids) == ["0", "1", "2"]


def test_paths_need_not_be_called_texts(tmp_path: Path, write_images: Any) -> None:
    write_images(tmp_path, GOOD, 0)
    table = pyarrow.table({"path": [name.encode() for name in GOOD]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    samples = ImageSamples(find_samples(tmp_path / "t.parquet", by_domain=False), tmp_path / "c", size=16)
    assert tuple(samples.ids) == GOOD


def test_a_table_without_any_path_is_refused_in_one_line(tmp_path: Path) -> None:
    found = find_samples(csv(tmp_path, ["", "", ""]), by_domain=False)
    with pytest.raises(InputError, match=r"^None of the 3 files of 'images' can be used"):
        ImageSamples(found, tmp_path / "cache", size=16)
