"""The public names: what ``import ucds`` offers, what each name loads, and the function of each command."""

import ast
import importlib.metadata
import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import ucds
import ucds.cli
from ucds.cli.options import app

PROVIDER, CLIENT = ("ucds.source.", "ucds.serving."), ("ucds.target.",)

EACH_IN_A_PROCESS = """
# Reads public names and prints, for each, the modules of ucds that a fresh process loads for it. Libraries
# are loaded once and the processes forked from there, which saves most of the time.
import gc, json, os, sys
import fastapi, httpx, jinja2, lightning_fabric, pydantic, scipy.cluster.hierarchy, sklearn.cluster
import sqlalchemy, timm, torch, torchvision, uvicorn

def modules():
    return sorted(name for name in sys.modules if name.partition(".")[0] == "ucds")

assert not modules()
gc.freeze()  # otherwise each process copies all that was loaded when it first collects garbage
found = {}
for name in json.load(sys.stdin):
    reading, writing = os.pipe()
    if os.fork() == 0:
        exec(f"from ucds import {name}")
        with os.fdopen(writing, "w") as pipe:
            json.dump(modules(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found[name] = json.loads(pipe.read() or "null")
    os.wait()
print(json.dumps(found))
"""


def run_program(program: str, text: str = "") -> Any:
    """Run a program in a fresh process and read the JSON that it prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str] | None]:
    """Modules of ucds that each public name loads by itself; ``None`` if it cannot be imported."""
    found: dict[str, list[str] | None] = run_program(EACH_IN_A_PROCESS, json.dumps(ucds.__all__))
    return found


def test_dir_lists_the_public_names_and_nothing_else() -> None:
    assert dir(ucds) == sorted(ucds.__all__)
    assert len(set(ucds.__all__)) == len(ucds.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("name", ucds.__all__)
def test_a_public_name_loads_in_a_fresh_process_and_at_most_one_side(
    name: str, loaded: dict[str, list[str] | None]
) -> None:
    modules = loaded[name]
    assert modules is not None
    sides = [any(module.startswith(side) for module in modules) for side in (PROVIDER, CLIENT)]
    assert sides != [True, True]


def test_the_estimators_load_torch_only_when_they_are_used() -> None:
    """Importing them takes about a second; with torch, Fabric and timm it took ten on a loaded machine."""
    program = "import json, sys; from ucds import SourceClustering, TargetClustering; "
    loaded = set(run_program(program + "print(json.dumps(sorted(sys.modules)))"))
    assert "sklearn.base" in loaded
    assert not loaded & {"torch", "lightning_fabric", "timm", "torchvision", "sklearn.cluster"}


@pytest.mark.slow
def test_names_of_a_side_load_that_side(loaded: dict[str, list[str] | None]) -> None:
    assert any(module.startswith(PROVIDER) for module in loaded["train_source"] or [])
    assert any(module.startswith(CLIENT) for module in loaded["train_target"] or [])


def test_importing_the_package_loads_nothing_else() -> None:
    modules = run_program("import sys, json, ucds; print(json.dumps(sorted(sys.modules)))")
    assert [name for name in modules if name.partition(".")[0] == "ucds"] == ["ucds"]
    assert {"torch", "numpy", "pydantic", "typer"}.isdisjoint(modules)


@pytest.mark.torch
def test_type_checkers_see_the_public_names_where_they_are() -> None:
    tree = ast.parse(Path(ucds.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    assert seen.keys() == set(ucds.__all__)
    for name, module in seen.items():
        assert getattr(ucds, str(name)) is getattr(import_module(f"ucds.{module}"), str(name))


def test_no_public_name_is_that_of_a_module() -> None:
    modules = {module.name for module in iter_modules(ucds.__path__)}
    assert modules.isdisjoint(ucds.__all__)


def test_the_version_is_that_of_the_installed_package() -> None:
    assert ucds.__version__ == importlib.metadata.version("ucds")


def test_another_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="No ucds attribute train"):
        _ = ucds.train  # type: ignore[attr-defined]


# They print what the package holds, keep the service's books, or run what lies in the repository.
WITHOUT_FUNCTION = {"settings", "sort", "demo", "benchmark", "table"}
COMMANDS = {str(command.name) for command in app.registered_commands}


@pytest.mark.parametrize("command", sorted(COMMANDS - WITHOUT_FUNCTION))
def test_each_command_has_a_public_function_of_its_name(command: str) -> None:
    function = getattr(ucds, command.replace("-", "_"))
    assert inspect.isfunction(function)
    assert f"``ucds {command}`` does the same" in " ".join(str(function.__doc__).split())


@pytest.mark.torch
def test_the_commands_without_a_function_are_named() -> None:
    assert COMMANDS > WITHOUT_FUNCTION
    assert {str(group.name) for group in app.registered_groups} == {"keys", "ledger"}
