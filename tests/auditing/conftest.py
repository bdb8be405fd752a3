"""Lets the tests of the audit import their kit, and that of the service."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent.parent / "serving"):
    sys.path.insert(0, str(folder))
