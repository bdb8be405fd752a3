"""Tests of what is said where packages of an extra are missing."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ucds.errors import InputError
from ucds.extras import EXTRAS, require_extra


@pytest.mark.parametrize(("extra", "package"), [(extra, name) for extra in EXTRAS for name in EXTRAS[extra]])
def test_each_missing_package_is_told_with_the_command_that_installs_it(
    extra: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    for name in EXTRAS[extra]:
        if name == package:
            monkeypatch.delitem(sys.modules, name, raising=False)
        else:
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InputError, match=rf"^PCD needs further packages: pip install 'ucds\[{extra}\]'$"):
        require_extra(extra, "PCD")
