"""Makes the helpers beside these tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `killing`, in the processes that it starts too
