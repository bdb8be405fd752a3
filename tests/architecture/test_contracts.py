"""The rules of who may import whom, and the closed vocabulary of the wire."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ucds.labels import wire

ROOT = Path(__file__).parents[2]


def test_the_import_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


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


def test_an_answer_holds_integers_and_the_name_of_the_model() -> None:
    fields = wire.LabelAnswer.model_json_schema()["properties"]
    assert set(fields) == {"labels", "n_clusters", "model", "budget"}
    assert fields["labels"]["items"]["type"] == "integer"
    assert [name for name, field in fields.items() if field.get("type") == "string"] == ["model"]
