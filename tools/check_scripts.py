"""Checks types with the programs of npm, where it is there and can bring them.

    python tools/check_scripts.py

TypeScript checks the page's script, and pyright the users' scripts of `tests/typing`, as mypy does.
Ends with the status of the checks; with 0, and a line that says so, for one that could not be made.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = {
    "the page's script": ("typescript@7.0.2", "tsc", ["-p", str(ROOT / "src/ucds/page/jsconfig.json")]),
    "users' scripts": (
        "pyright@1.1.414",
        "pyright",
        ["-p", str(ROOT / "tests/typing"), "--pythonpath", sys.executable],
    ),
}
"""Package, program and arguments of each check, by what is checked."""


def main() -> int:
    """Run the checks, and return the worst exit status."""
    npm = shutil.which("npm")
    if npm is None:
        print(f"no npm: the types of {' and '.join(CHECKS)} are not checked", file=sys.stderr)
        return 0
    return max(_check(npm, what, *how) for what, how in CHECKS.items())


def _check(npm: str, what: str, package: str, program: str, arguments: list[str]) -> int:
    command = [npm, "exec", "--yes", "--package", package, "--", program]
    if subprocess.run([*command, "--version"], capture_output=True).returncode != 0:
        print(f"npm cannot bring {package}: the types of {what} are not checked", file=sys.stderr)
        return 0
    return subprocess.run([*command, *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main())
