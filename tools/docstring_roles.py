"""Turns Sphinx roles of docstrings into links of the site, for mkdocstrings.

``:func:`ucds.load``` becomes a link to the entry of that name on the page of functions. What has no entry
there stays a name in code letters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_PAGE = Path(__file__).parents[1] / "docs" / "python.md"
_ROLE = re.compile(r":(?:func|class|meth|data|attr|mod):`~?([\w.]+)`")
_ENTRIES = {
    f"ucds.{path.rpartition('.')[2]}": path
    for path in re.findall(r"^::: (\S+)$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
}


def link_roles(text: str) -> str:
    """Replace the roles in a text by Markdown: a link where the name is public, code letters elsewhere."""

    def replace(role: re.Match[str]) -> str:
        name = role[1]
        return f"[`{name}`][{_ENTRIES[name]}]" if name in _ENTRIES else f"`{name}`"

    return _ROLE.sub(replace, text)


class DocstringRoles(griffe.Extension):
    """Rewrites each docstring when it is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the roles in the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = link_roles(obj.docstring.value)
