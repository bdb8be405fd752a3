"""Fetch the libraries of the page from the npm registry, at the versions that kept.json names.

    python tools/fetch_kept.py

The files are copied as they were published, and their hashes are written into kept.json.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

KEPT = Path(__file__).resolve().parents[1] / "src" / "ucds" / "page" / "template" / "kept"


def main() -> None:
    """Fetch every package, copy its files, and write down their hashes."""
    listed = json.loads((KEPT / "kept.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        for name, package in listed.items():
            asked = ["npm", "pack", "--silent", f"{name}@{package['version']}", "--pack-destination", place]
            file = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()[-1]
            with tarfile.open(Path(place) / Path(file).name) as archive:
                for target, entry in package["files"].items():
                    member = archive.extractfile(f"package/{entry['from']}")
                    assert member is not None, entry
                    content = member.read()
                    (KEPT / target).write_bytes(content)
                    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (KEPT / "kept.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
