"""Tests of named columns: they are found by name and never taken by position."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

from ucds.data.sources import find_samples
from ucds.data.vectors import VectorSamples, in_order
from ucds.encoders.encoder import Encoder, IdentityEncoder
from ucds.errors import InputError
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.training.inputs import open_for_prediction, open_for_training
from ucds.training.options import Compute, EncoderOptions

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
FRAME = pandas.DataFrame(ROWS, columns=["a", "b", "c"])
MIXED = FRAME[["c", "a", "b"]]


def written(frame: pandas.DataFrame, path: Path) -> Path:
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


FORMS: dict[str, Callable[[pandas.DataFrame, Path], Any]] = {
    "CSV": lambda frame, folder: written(frame, folder / "x.csv"),
    "parquet": lambda frame, folder: written(frame, folder / "x.parquet"),
    "frame": lambda frame, folder: frame,
    "pyarrow": lambda frame, folder: pyarrow.Table.from_pandas(frame),
    "rows": lambda frame, folder: frame.to_dict("records"),
    "structured": lambda frame, folder: frame.to_records(index=False),
}


def trained_on(source: Any) -> Encoder:
    found = find_samples(source, by_domain=False)
    return open_for_training(found, EncoderOptions(), Compute()).encoder


def rows_for(encoder: Encoder, source: Any) -> Any:
    samples = open_for_prediction(source, encoder, "target", Compute()).samples
    return samples.read(np.arange(len(samples)))


@pytest.mark.parametrize("form", FORMS)
def test_another_order_is_put_right_and_other_columns_are_refused(form: str, tmp_path: Path) -> None:
    model, make = trained_on(FORMS[form](FRAME, tmp_path)), FORMS[form]
    assert model.spec.columns == ("a", "b", "c")
    np.testing.assert_array_equal(rows_for(model, make(MIXED, tmp_path)), ROWS)
    with pytest.raises(InputError, match=r"those of the model: it lacks 'b' and has 'x', 'z'$"):
        rows_for(model, make(FRAME.rename(columns={"b": "x"}).assign(z=0.0), tmp_path))
    with pytest.raises(InputError, match="it lacks 'b'$"):
        rows_for(model, make(FRAME[["a", "c"]], tmp_path))


def test_samples_without_names_are_taken_by_position() -> None:
    named = trained_on(FRAME)
    for source in (ROWS, FRAME.set_axis(range(3), axis=1), pandas.DataFrame({"embedding": list(ROWS)})):
        np.testing.assert_array_equal(rows_for(named, source), ROWS)
        unnamed = trained_on(source)
        assert unnamed.spec.columns is None
        np.testing.assert_array_equal(rows_for(unnamed, FRAME), ROWS)
    positions = FRAME.set_axis(range(3), axis=1)[[2, 0, 1]]
    np.testing.assert_array_equal(rows_for(trained_on(ROWS), positions), ROWS)
    with pytest.raises(InputError, match="vectors of width 2; the model takes 3"):
        rows_for(named, ROWS[:, :2])


def test_case_and_spaces_matter_only_where_nothing_else_differs() -> None:
    np.testing.assert_array_equal(rows_for(trained_on(FRAME), MIXED.rename(columns={"a": " A"})), ROWS)
    cased = FRAME.set_axis(["a", "A", "c"], axis=1)
    np.testing.assert_array_equal(rows_for(trained_on(cased), cased[["c", "A", "a"]]), ROWS)


def test_ids_and_domains_go_with_the_rows() -> None:
    frame = MIXED.assign(id=list("pqrs"), domain=list("nsns"))
    found = in_order(find_samples(frame, by_domain=True), ("a", "b", "c"))
    assert (found.ids, found.domain.tolist()) == (tuple("pqrs"), [0, 1, 0, 1])
    np.testing.assert_array_equal(found.read(np.arange(4)), ROWS)


def test_many_names_are_shortened_in_the_message() -> None:
    many = VectorSamples(np.zeros((2, 1000)), columns=[f"measurement {i}" for i in range(1000)])
    with pytest.raises(InputError) as error:
        in_order(many, [f"\x1b\nother {i}" for i in range(1000)])
    assert len(str(error.value)) < 200
    assert str(error.value).isprintable()
    with pytest.raises(InputError, match="2 columns do not make 3 features"):
        IdentityEncoder(3, ("a", "b"))


def test_labels_are_those_of_the_named_columns(tmp_path: Path) -> None:
    asked = in_order(find_samples(MIXED, by_domain=False), ("a", "b", "c"))
    marks = marks_of(asked.keys)
    ClusterLabels(asked.ids, np.arange(4), 4, "clinic", marks, asked.columns).save(tmp_path / "l.json")
    labels = ClusterLabels.load(tmp_path / "l.json")
    assert labels.columns == ("a", "b", "c")
    for frame in (FRAME, MIXED):
        aligned = labels.align_with(find_samples(frame, by_domain=False))
        assert (aligned.labels.tolist(), aligned.columns) == ([0, 1, 2, 3], labels.columns)
    with pytest.raises(InputError, match="those of the labels: it lacks 'b' and has 'x'"):
        labels.align_with(find_samples(FRAME.rename(columns={"b": "x"}), by_domain=False))
