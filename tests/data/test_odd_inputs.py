"""Tests of odd inputs: each is read rightly, or refused in one short line."""

import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples
from ucds.errors import UserError

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], np.float32)
FRAME = pandas.DataFrame(ROWS, columns=["a", "b"])


class Framed:
    """A data frame of an unknown library."""

    columns = ("a", "b")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, name: str) -> Any:
        return FRAME[name]

    def to_numpy(self) -> Any:
        return ROWS


TENSORS: dict[str, Callable[[Any, Any], Any]] = {
    "with a gradient": lambda torch, rows: rows.requires_grad_(),
    "in a data set": lambda torch, rows: torch.utils.data.TensorDataset(rows, torch.zeros(3)),
    "bfloat16": lambda torch, rows: rows.bfloat16(),
    "rows of bfloat16": lambda torch, rows: list(rows.bfloat16()),
    "sparse": lambda torch, rows: rows.to_sparse(),
    "sparse in rows": lambda torch, rows: rows.to_sparse_csr(),
    "negative view": lambda torch, rows: torch.complex(torch.zeros(3, 2), -rows).conj().imag,
    "complex": lambda torch, rows: rows * 1j,
    "without storage": lambda torch, rows: torch.ones(3, 2, device="meta"),
}


def tensor(kind: str) -> Any:
    import torch

    return TENSORS[kind](torch, torch.from_numpy(ROWS.copy()))


READ: dict[str, Callable[[], Any]] = {
    "pyarrow.RecordBatch": lambda: pyarrow.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}).to_batches()[0],
    "array of lists of pyarrow": lambda: pyarrow.array(ROWS.tolist()),
    "chunked array of pyarrow": lambda: pyarrow.chunked_array([ROWS[:1].tolist(), ROWS[1:].tolist()]),
    "masked array without masked values": lambda: np.ma.masked_array(ROWS, mask=False),
    "object array": lambda: ROWS.astype(object),
    "structured array": lambda: np.array([tuple(row) for row in ROWS], [("a", "f4"), ("b", "f8")]),
    "frame by its form": Framed,
    "nullable numbers": lambda: FRAME.astype("Float64"),
    "numbers of pyarrow": lambda: FRAME.astype("double[pyarrow]"),
    "names of several levels": lambda: FRAME.set_axis(
        pandas.MultiIndex.from_tuples([("x", "a"), ("x", "b")]), axis=1
    ),
    "rows of a frame": lambda: [row for _, row in FRAME.iterrows()],
    "big endian": lambda: ROWS.astype(">f8"),
    "truth values": lambda: ROWS > 2,
    "decimals": lambda: FRAME.map(lambda value: Decimal(str(value))),
    "decimals of pyarrow": lambda: pyarrow.table(
        {name: pyarrow.array(map(Decimal, map(str, FRAME[name]))) for name in "ab"}
    ),
} | {f"tensor, {kind}": partial(tensor, kind) for kind in list(TENSORS)[:-2]}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.torch if "tensor," in kind else ()) for kind in READ]
)
def test_an_odd_form_of_vectors_is_read_rightly(kind: str) -> None:
    with warnings.catch_warnings(action="error", category=UserWarning):
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        found = find_samples(READ[kind](), by_domain=False)
    assert isinstance(found, VectorSamples)
    expected = ROWS > 2 if kind == "truth values" else ROWS
    np.testing.assert_array_equal(found.read(np.arange(3)), expected)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "two columns of one name": (lambda: FRAME.set_axis(["a", "a"], axis=1), "the same name 'a'"),
    "columns 0 and '0'": (lambda: FRAME.set_axis([0, "0"], axis=1), "the same name '0'"),
    "keys 0 and '0'": (lambda: [{0: 1.0, "0": 2.0}] * 3, "the same name '0'"),
    "pyarrow.Table of one name": (lambda: pyarrow.table([[1.0], [2.0]], names=["a", "a"]), "the same name"),
    "rows with further keys": (lambda: [{"a": 1.0}, {"a": 2.0, "c": 1.0}], "row 1 .* has 'c'"),
    "masked values": (lambda: np.ma.masked_equal(ROWS, 2.0), "masked values"),
    "masked values in a list": (lambda: list(np.ma.masked_equal(ROWS, 2.0)), "masked values"),
    "complex rows": (lambda: list(ROWS * 1j), "neither images"),
    "complex column": (lambda: FRAME * 1j, "holds no numbers"),
    "column of dates": (lambda: FRAME.astype({"a": "datetime64[ns]"}), "'a' holds no numbers"),
    "numbers as words": (lambda: FRAME.astype({"b": str}), "'b' holds no numbers"),
    "missing among nullable numbers": (lambda: FRAME.astype("Float64").replace(2.0, pandas.NA), "NaN"),
    "lists of another name": (lambda: pyarrow.table({"emb": ROWS.tolist()}), "'emb' holds no numbers"),
    "lists of several lengths": (lambda: [{"v": [1.0]}, {"v": [1.0, 2.0]}], "'v' holds no numbers"),
    "array without dimensions": (lambda: np.array(1.0), "several samples at a time"),
    "one picture": (lambda: np.zeros((40, 30, 3), np.uint8), "one picture in colour: give a list"),
    "generator": (lambda: (row for row in ROWS), "several samples at a time"),
    "values of a mapping": (lambda: {"a": ROWS[0]}.values(), "give a list"),
    "objects": (lambda: [object()] * 3, "neither images"),
    "an image among paths": (lambda: ["a.png", np.zeros((5, 5, 3), np.uint8)], "sample 1 is no path"),
    "ragged rows": (lambda: [[1.0], [1.0, 2.0]], "neither images"),
    "a set": (lambda: {"a.png", "b.png"}, "samples need an order, which a set does not have: give a list"),
    "rows of other keys": (lambda: [{"path": "a"}, {"file": "b"}], "row 1 .* has no 'path', unlike row 0"),
    "words": (lambda: FRAME.assign(city="Rome"), "the column 'city' holds no numbers"),
    "a word among numbers": (lambda: pandas.DataFrame({"x": ["1", ""]}), "'x' holds '' in row 1"),
    "nothing among objects": (lambda: pandas.DataFrame({"x": [1, None]}, dtype=object), "'None' in row 1"),
    "ids alone": (lambda: pandas.DataFrame({"id": ["Rome"]}), "no column holds samples"),
    "missing": (lambda: pandas.DataFrame({"x": [1.0, None]}), "NaN"),
    "ragged embeddings": (lambda: pandas.DataFrame({"vector": [[1.0], [1.0, 2.0]]}), "all of one length"),
    "one path twice": (lambda: pandas.DataFrame({"path": ["a", "a"]}), "the table: .* the id 'a'"),
    "no paths": (lambda: pandas.DataFrame({"path": []}), "there are no samples"),
    "tensor, complex": (partial(tensor, "complex"), "real numbers"),
    "tensor, without storage": (partial(tensor, "without storage"), "cannot be read as an array"),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.torch if "tensor," in kind else ()) for kind in REFUSED]
)
def test_an_odd_input_is_refused_in_one_short_line(kind: str) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(UserError, match=words) as error:
        find_samples(make(), by_domain=False)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_a_csv_file_with_very_long_lines_is_read(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    lines = [",".join(f"{value:.400f}" for value in row) for row in rows]  # of 1.2 MB each
    (tmp_path / "x.csv").write_text("\n".join([",".join(f"c{i}" for i in range(3000)), *lines]))
    found = find_samples(tmp_path / "x.csv", by_domain=False)
    assert isinstance(found, VectorSamples)
    np.testing.assert_array_equal(found.read(np.arange(2)), rows)
