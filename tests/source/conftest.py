"""Runs commands in the process of a test."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import pytest

from ucds.cli import main


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command in this process and return its exit status."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["ucds", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call
