"""Checks the types of the page's script with TypeScript, where npm is there and can bring it.

    python tools/check_scripts.py

Ends with the status of the check; with 0, and a line that says so, where it could not be made.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "src" / "ucds" / "page" / "jsconfig.json"
PACKAGE = "typescript@7.0.2"


def main() -> int:
    """Run the check, and return its exit status."""
    if (npm := shutil.which("npm")) is None:
        print("no npm: the types of the page's script are not checked", file=sys.stderr)
        return 0
    compiler = [npm, "exec", "--yes", "--package", PACKAGE, "--", "tsc"]
    if subprocess.run([*compiler, "--version"], capture_output=True).returncode != 0:
        print(f"npm cannot bring {PACKAGE}: the types of the page's script are not checked", file=sys.stderr)
        return 0
    return subprocess.run([*compiler, "-p", str(PROJECT)]).returncode


if __name__ == "__main__":
    sys.exit(main())
