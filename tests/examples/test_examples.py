"""Every example runs as it stands, and finds what it was written to find."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ucds

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("name", "at_least"), [("embeddings", 55.0), ("own_network", 60.0)])
def test_example(name: str, at_least: float, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    agreement = float(re.findall(r"([\d.]+) %", done.stdout)[-1])
    assert agreement >= at_least, done.stdout
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
    assert imported
    assert set(imported) <= set(ucds.__all__)


def test_every_example_is_tested() -> None:
    tested = {mark.args[1][i][0] for mark in test_example.pytestmark for i in range(len(mark.args[1]))}
    assert tested == {path.stem for path in EXAMPLES.glob("*.py")}
