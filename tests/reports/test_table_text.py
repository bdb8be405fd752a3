"""Tests of tables: as Markdown, and as LaTeX that says the same."""

from __future__ import annotations

import math
import re

import pytest

from ucds.reports.statistics import Interval
from ucds.reports.table_text import MISSING, NOTHING, Number, Row, Table, summarise, to_latex, to_markdown

TABLE = Table(
    "A title, 95 % sure, +- 1",
    ("method", "web_cam", "interval"),
    (
        Row("w/o {x} & y", (summarise([60.0, 70.0, 80.0]), Interval(-1.25, 2.0))),
        Row("ours", (Number(1.234, digits=2), Interval(-math.inf, math.inf)), emphasised=True),
        Row("none", (MISSING, NOTHING)),
        Row("above", (Number(2.0, signed=True), Number(30.0, count=1))),
    ),
)


def test_markdown_by_hand() -> None:
    assert to_markdown(TABLE) == "\n".join(
        [
            "A title, 95 % sure, +- 1",
            "",
            "| method | web_cam | interval |",
            "| --- | --- | --- |",
            "| w/o {x} & y | 70.0 +- 10.0 (3) | -1.2 to +2.0 |",
            "| **ours** | 1.23 | - |",
            "| none | missing | - |",
            "| above | +2.0 | 30.0 (1) |",
        ]
    )


def test_latex_by_hand() -> None:
    assert to_latex(TABLE).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{A title, 95 \% sure, $\pm$ 1}",
        r"\begin{tabular}{lcc}",
        r"\toprule",
        r"method & web\_cam & interval \\",
        r"\midrule",
        r"w/o \{x\} \& y & $70.0 \pm 10.0$ (3) & $-1.2$ to $+2.0$ \\",
        r"\textbf{ours} & $1.23$ & -- \\",
        r"none & missing & -- \\",
        r"above & $+2.0$ & $30.0$ (1) \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_all_special_characters_of_latex_are_written_out() -> None:
    text = to_latex(Table("a", ("x",), (Row(r"\ ~ ^ < > # $", ()),)))
    line = next(line for line in text.splitlines() if "tilde" in line)
    without = re.sub(r"\\text\w+\{\}|\\[#$]|\\\\$", "", line)
    assert not re.search(r"[\\~^<>#$]", without)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], MISSING),
        ([5.0], Number(5.0, None, 1)),
        ([1.0, 2.0, 3.0], Number(2.0, 1.0, 3)),
    ],
)
def test_values_are_summed_up(values: list[float], expected: object) -> None:
    assert summarise(values) == expected
