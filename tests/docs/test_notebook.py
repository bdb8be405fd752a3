"""The notebook runs from its beginning to its end, and finds the symbols that it drew."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "tour.ipynb"


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook["cells"] for output in cell.get("outputs", ())]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute(cwd=str(tmp_path))
    printed = "".join(output.get("text", "") for output in outputs(notebook))
    assert float(re.findall(r"([\d.]+) % of the pictures", printed)[0]) >= 95


def test_it_shows_what_it_printed_and_drew() -> None:
    shown = outputs(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert any("clusters" in line for output in shown for line in output.get("text", ()))
    assert sum("image/png" in output.get("data", ()) for output in shown) == 2
    assert NOTEBOOK.stat().st_size < 200_000
