"""Every example runs as it stands, and finds what it was written to find."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import ucds

EXAMPLES = Path(__file__).parents[2] / "examples"
FOREIGN = {"verify_receipts", "onnx_model"}  # use nothing of this package; see their own tests
WITH_ARGUMENTS = {"answers_by_program"}  # see its own test


AT_LEAST = {"embeddings": 55.0, "own_network": 60.0, "pcd_loss": 55.0, "table": 80.0, "text": 95.0}
"""Accuracy in percent that each example must print at its end."""


@pytest.mark.parametrize(
    "name",
    ["table", *(pytest.param(name, marks=pytest.mark.slow) for name in AT_LEAST if name != "table")],
)
@pytest.mark.filterwarnings("error::UserWarning")
def test_example(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert float(re.findall(r"([\d.]+) %", printed)[-1]) >= AT_LEAST[name], printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_public_names_only(path: Path) -> None:
    imported = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.partition(".")[0] == "ucds"]
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "ucds":
            assert node.module == "ucds"
            imported += [alias.name for alias in node.names]
    assert set(imported) <= set(ucds.__all__)
    assert bool(imported) == (path.stem not in FOREIGN)


def test_every_example_is_tested() -> None:
    assert AT_LEAST.keys() | FOREIGN | WITH_ARGUMENTS == {path.stem for path in EXAMPLES.glob("*.py")}
