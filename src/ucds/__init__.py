"""Unsupervised clustering under domain shift, with source privacy.

Importing the package loads neither the provider's modules nor the client's, nor torch: a public name loads
its own module when it is first used. The public names are those that ``__init__.pyi`` imports.
"""

from __future__ import annotations

import ast
import os
from importlib import import_module
from pathlib import Path
from typing import Any

# Libraries that would send statistics of their use look here, some of them when they are imported.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_MODULES = {
    alias.name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ucds")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
