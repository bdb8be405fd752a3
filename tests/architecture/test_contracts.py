"""The rules of who may import whom, and the closed vocabulary of the wire."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ucds.labels import wire

ROOT = Path(__file__).parents[2]


LAYERS = "Rooms lie in layers: none knows of a room above it, nor of one beside it behind a bar"
PROVIDER = "The provider's side never sees the client's"
CLIENT = "The client's side never sees the provider's"
GROUND_TRUTH = "Ground truth is read in evaluation only"
TENSORS = "Arrays never import tensors"
FABRIC = "Only the runtime knows Fabric"
RAY = "Only one module knows Ray"
WEB = "Only the service knows its web framework and its database"

VIOLATIONS = {
    "a lower room knows a higher one": ("data/batches.py", "ucds.gradients.session", {LAYERS, TENSORS}),
    "mathematics knows the settings beside it": ("math/kmeans.py", "ucds.config", {LAYERS}),
    "a room that no layer names": ("attic.py", "math", {LAYERS}),
    "the provider trains with the client's code": (
        "source/train.py",
        "ucds.target.guard",
        {LAYERS, PROVIDER},
    ),
    "the service reads the client's code": ("serving/app.py", "ucds.target.ask", {LAYERS, PROVIDER}),
    "a shared room leads to the client": ("gradients/steps.py", "ucds.target.guard", {LAYERS, PROVIDER}),
    "the client trains with the provider's code": ("target/train.py", "ucds.source.train", {LAYERS, CLIENT}),
    "the client knows the service": ("target/ask.py", "ucds.serving.limits", {LAYERS, CLIENT}),
    "training reads ground truth": ("training/prepare.py", "ucds.data.ground_truth", {GROUND_TRUTH}),
    "a baseline scores itself": ("baselines/plain.py", "ucds.math.metrics", {GROUND_TRUTH}),
    "the consensus computes with tensors": ("target/agreement.py", "torch", {TENSORS}),
    "the consensus builds a network": ("training/fitting.py", "ucds.networks.model", {TENSORS}),
    "scores come to tensors by a benchmark": ("evaluation.py", "ucds.experiments.scoring", {LAYERS, TENSORS}),
    "a stage knows Fabric": ("gradients/stage.py", "lightning_fabric", {FABRIC}),
    "the command line knows the engine of bulk work": ("cli/bulk.py", "ray", {RAY}),
    "the client's wire knows a web framework": ("labels/wire.py", "fastapi", {WEB}),
    "the command line knows a database": ("cli/serving.py", "sqlalchemy", {WEB}),
    "the demo knows a web server": ("demo/story.py", "uvicorn", {WEB}),
}
"""File, module that it imports, and the contracts that this breaks."""


def broken_contracts(root: Path) -> set[str]:
    """Check the contracts of a project, and return the names of those that are broken."""
    program = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = [line.rpartition(" BROKEN") for line in done.stdout.splitlines()]
    broken = {name for name, verdict, _ in verdicts if verdict}
    assert done.returncode == bool(broken), done.stdout + done.stderr
    return broken


def test_the_import_contracts_hold() -> None:
    assert broken_contracts(ROOT) == set()


@pytest.mark.parametrize(("file", "imported", "broken"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_broken_contract_is_found(file: str, imported: str, broken: set[str], tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "src" / "ucds", tmp_path / "src" / "ucds", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (tmp_path / "src" / "ucds" / file).open("a") as module:
        module.write(f"\nimport {imported}\n")
    assert broken_contracts(tmp_path) == broken


def test_every_contract_is_broken_once() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    names = {contract["name"] for contract in settings["contracts"]}
    assert set().union(*(broken for *_, broken in VIOLATIONS.values())) == names


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


def _types(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["type"]} if isinstance(schema.get("type"), str) else set()
        return own.union(*map(_types, schema.values()))
    return set().union(*map(_types, schema)) if isinstance(schema, list) else set()


@pytest.mark.parametrize("message", [wire.LabelAnswer, wire.ServiceInfo, wire.Problem])
def test_every_message_is_closed_and_holds_no_fraction(message: type[wire.Message]) -> None:
    schema = message.model_json_schema()
    objects = list(_objects(schema))
    assert objects
    assert all(part["additionalProperties"] is False for part in objects)
    assert _types(schema) <= {"object", "array", "integer", "string", "null"}


def test_an_answer_holds_integers_and_names_the_model() -> None:
    fields = wire.LabelAnswer.model_json_schema()["properties"]
    named = {"labels", "unusable", "n_clusters", "model", "model_digest", "budget", "receipt"}
    assert set(fields) == named
    assert {kind["type"] for kind in fields["labels"]["items"]["anyOf"]} == {"integer", "null"}
    strings = [name for name, field in fields.items() if field.get("type") == "string"]
    assert strings == ["model", "model_digest"]
