"""The closed vocabulary of the wire. Who may import whom is checked by ``make check``."""

from collections.abc import Iterator
from typing import Any

import pytest

from ucds.labels import wire


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
