"""The service's description as a page without scripts: it loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "code{background:#f2f2f2;padding:0 .2rem}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "h2{margin-top:2rem;border-top:1px solid #ccc;padding-top:1rem}"
)


def render_page(schema: Mapping[str, Any]) -> str:
    """Render an OpenAPI description as one page, with a section for each operation."""
    sections = [
        _section(method, path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    title = escape(f"{schema['info']['title']}, version {schema['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1>"
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>. '
        "Refusals are problem documents (RFC 9457).</p>" + "".join(sections) + "</html>"
    )


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    bodies = operation.get("requestBody", {}).get("content", {})
    rows = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(answer.get('description', ''))}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    takes = f"<p>Takes <code>{escape(', '.join(bodies))}</code>.</p>" if bodies else ""
    key = "<p>Needs a key: <code>Authorization: Bearer KEY</code>.</p>" if operation.get("security") else ""
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>{key}{takes}<table>{rows}</table>"
    )
