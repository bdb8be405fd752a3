"""Writes hashes.txt: the SHA-256 of every package that constraints.txt pins, for several versions of Python.

    python tools/write_hashes.py

pip is asked what it would install on this kind of machine, and installs nothing. With the file, pip refuses a
package that is not the one that was tested:

    python -m pip install --require-hashes --no-deps -r hashes.txt
    python -m pip install --no-deps .
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11.14", "3.12.12", "3.13.9", "3.14.0")  # some packages need a late one


def main() -> None:
    """Ask for each version of Python, and write the file."""
    hashes: dict[str, set[str]] = {}
    for version in VERSIONS:
        for pin, digest in ask(version).items():
            hashes.setdefault(pin, set()).add(digest)
    (ROOT / "hashes.txt").write_text(render(hashes), encoding="utf-8")


def ask(version: str) -> dict[str, str]:
    """Return the hash of each pinned package that pip would install for a version of Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--no-deps", "--only-binary=:all:", "--python-version", version, "--target", folder]
        command += ["--report", str(report), "--requirement", str(ROOT / "constraints.txt")]
        subprocess.run(command, check=True)
        return read_report(json.loads(report.read_text(encoding="utf-8")))


def read_report(report: Any) -> dict[str, str]:
    """Return the hash of each package of pip's report, by its pin."""
    found = {}
    for package in report["install"]:
        told, archive = package["metadata"], package["download_info"]["archive_info"]
        found[f"{told['name']}=={told['version']}"] = archive["hashes"]["sha256"]
    return found


def render(hashes: Mapping[str, set[str]]) -> str:
    """Write pins and hashes as pip reads them."""
    lines = [
        " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes[pin]))])
        for pin in sorted(hashes, key=str.lower)
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
