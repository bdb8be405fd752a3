"""Every result that a public name gives prints itself in one line, and as a table in a notebook."""

import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

import numpy as np
import pytest

import ucds
from ucds.encoders.encoder import FunctionEncoder, IdentityEncoder
from ucds.target.predictions import Predictions
from ucds.target.update import UpdatedRun
from ucds.training.loaded import Outputs

pytestmark = pytest.mark.torch

NO_RESULTS = {
    *("Compute", "EncoderOptions", "RunOptions", "BulkOptions", "Limits", "VoteChoices", "LabelClient"),
    "Effort",
    "Dataset",
}
"""What a user makes, whose line holds the few short values that he gave; and samples that were opened."""


def returned_by(public: Any) -> Iterator[type]:
    """The classes of this package that a function, or the methods of a class, return."""
    members = vars(public).values() if isinstance(public, type) else [public]
    for member in members:
        function = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "func", None) or member)
        if isinstance(function, FunctionType) and not function.__name__.startswith("_"):
            found = None
            with suppress(NameError):  # of a name that only type checkers import
                found = eval(function.__annotations__.get("return", "None"), function.__globals__)
            yield from (kind for kind in (found, *get_args(found)) if isinstance(kind, type))


def results() -> list[type]:
    public = [getattr(ucds, name) for name in ucds.__all__]
    kinds = {kind for one in public if callable(one) for kind in returned_by(one)}
    kinds |= {one for one in public if isinstance(one, type)}
    ours = {kind for kind in kinds if kind.__module__.startswith("ucds.")}
    plain = {kind for kind in ours if is_dataclass(kind) or hasattr(kind, "_fields")}
    return sorted((kind for kind in plain if kind.__name__ not in NO_RESULTS), key=lambda kind: kind.__name__)


def test_every_kind_of_result_has_a_line_and_a_table() -> None:
    kinds = results()
    assert {ucds.ClusterLabels, ucds.Model, Predictions, UpdatedRun} <= {*kinds}
    assert [kind.__name__ for kind in kinds if not hasattr(kind, "_repr_html_")] == []


N = 10_000
IDS, MANY, SHARES = tuple(f"<b>{i}.png" for i in range(N)), np.arange(N) % 3, np.full(N, 0.9, np.float32)
EXAMPLES: list[tuple[Any, list[str]]] = [
    (
        Predictions(IDS, MANY, SHARES, names={0: "a\nb"}, n_clusters=3),
        ["'<b>0.png'", "10,000 in all", "n_clusters=3"],
    ),
    (ucds.ClusterLabels(IDS, MANY, 3, "clinic"), ["labels=[0, 1, 2, ... 10,000 in all]", "'clinic'"]),
    (Outputs(np.zeros((N, 8), np.float32), np.zeros((N, 3), np.float32), SHARES), ["<float32 (10000, 8)>"]),
    (UpdatedRun(Path("run"), 5, 0, IDS, (3,), 2, (), 4), ["path='run'", "joined=5", "new_clusters=[3]"]),
    (
        ucds.Question("place", (IDS, IDS), (0, 1), ("Cats", "Dogs"), "own", 7, {}),
        ["Where does the first group belong?", "['Cats', 'Dogs']"],
    ),
    (FunctionEncoder(np.sin, 5), ["FunctionEncoder('function', width=5, 'given')"]),
]


@pytest.mark.parametrize(("result", "words"), EXAMPLES, ids=lambda one: type(one).__name__)
def test_a_result_prints_itself_in_one_short_line(result: Any, words: list[str]) -> None:
    line = repr(result)
    assert "\n" not in line
    assert " at 0x" not in line
    assert len(line) < 500
    assert all(word in line for word in words), line


def test_a_table_has_a_row_for_each_sample_or_figure_and_holds_no_markup_of_others() -> None:
    shown: Any = Predictions(IDS, MANY, SHARES, n_clusters=3)
    page = shown._repr_html_()
    assert re.findall(r"<th>(.*?)</th>", page) == ["ids", "clusters", "confidence"]
    assert page.count("<tr>") == 11
    assert "9,990 more rows" in page
    assert "<td>2</td>" in page
    assert "<b>" not in page
    shown = UpdatedRun(Path("run"), 5, 0, (), (), 2, (), 4)
    page = shown._repr_html_()
    assert "<caption>UpdatedRun</caption><tr></tr><tr><td>path</td>" in page
    assert "<tr><td>joined</td><td>5</td></tr>" in page
    one_array: Any = ucds.ClusterLabels(IDS, MANY, 3, "clinic")
    assert "9,990 more rows" in one_array._repr_html_()


def test_a_model_says_how_it_was_made(stored_model: Any) -> None:
    line = repr(ucds.Model(stored_model(IdentityEncoder(5), 3, 7)))
    assert line.startswith("Model(role='target', n_clusters=3, encoder=IdentityEncoder('identity', width=5")
    assert "method='consensus', tune='head', seed=7" in line
