"""The public names: what ``import ucds`` offers, what each name loads, and the function of each command."""

import ast
import importlib.metadata
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import ucds

WHAT_IMPORTS_LOAD = """
import sys
def modules(*packages):
    return {name for name in sys.modules if name.partition(".")[0] in packages}
import ucds
assert modules("ucds", "torch", "numpy", "pydantic", "typer") == {"ucds"}
import ucds.cli, ucds.labels.query, ucds.labels.questions
sides = ("ucds.source", "ucds.serving", "ucds.target", "ucds.experiments")
assert not [name for name in modules("ucds") if name.startswith(sides)]
from ucds import SourceClustering, TargetClustering
assert "sklearn.base" in sys.modules
assert not modules("torch", "lightning_fabric", "timm", "torchvision")
assert "sklearn.cluster" not in sys.modules
"""


def test_an_import_loads_what_it_needs_and_nothing_else() -> None:
    subprocess.run([sys.executable, "-c", WHAT_IMPORTS_LOAD], check=True)


def test_the_package_offers_its_public_names_and_its_version_and_nothing_else() -> None:
    assert dir(ucds) == sorted(ucds.__all__)
    assert len(set(ucds.__all__)) == len(ucds.__all__)
    assert {module.name for module in iter_modules(ucds.__path__)}.isdisjoint(ucds.__all__)
    assert ucds.__version__ == importlib.metadata.version("ucds")
    with pytest.raises(AttributeError, match="No ucds attribute train"):
        _ = ucds.train  # type: ignore[attr-defined]


@pytest.mark.torch
def test_type_checkers_see_the_public_names_where_they_are() -> None:
    tree = ast.parse(Path(ucds.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    assert seen.keys() == set(ucds.__all__)
    for name, module in seen.items():
        assert getattr(ucds, str(name)) is getattr(import_module(f"ucds.{module}"), str(name))
