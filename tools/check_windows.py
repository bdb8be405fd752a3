"""Checks that what a client runs calls nothing that Windows lacks: mypy reads the code as if it ran there.

    python tools/check_windows.py

The label service, the confinement of its decoders and the benchmarks of published tables need Linux or macOS.
"""

from __future__ import annotations

import re
import sys

from mypy import api

POSIX = re.compile(r"src/ucds/(serving/|experiments/|data/(sandbox|confinement)\.py)")


def main() -> None:
    """Print what Windows lacks, and end with status 1 if there is anything."""
    told, fault, _ = api.run(["--platform", "win32", "--cache-dir", ".mypy_cache/windows", "src"])
    missing = [line for line in told.splitlines() if ": error: " in line and not POSIX.match(line)]
    if missing or fault:
        sys.exit("\n".join([*missing, fault]).strip())
    print("what a client runs calls nothing that Windows lacks")


if __name__ == "__main__":
    main()
