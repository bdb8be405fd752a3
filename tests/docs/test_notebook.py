"""The notebook runs from its beginning to its end, and finds the symbols that it drew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import nbformat

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "tour.ipynb"


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute(cwd=str(tmp_path))
    assert float(re.findall(r"([\d.]+) % of the pictures", printed(notebook))[0]) >= 95


def test_it_shows_what_it_printed_and_drew() -> None:
    import nbformat  # takes more than a second, which every worker would pay that collects this file

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert "clusters; the first labels are" in printed(notebook)
    assert "new clusters: 4" in printed(notebook)
    drawn = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("image/png" in output.data for output in drawn) == 2
    assert NOTEBOOK.stat().st_size < 200_000
