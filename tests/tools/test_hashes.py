"""hashes.txt names every package of constraints.txt, each with a SHA-256, and nothing else."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def name_of(pin: str) -> str:
    """The pin with the name as package indexes compare it."""
    name, _, version = pin.partition("==")
    return f"{re.sub('[-_.]+', '-', name).lower()}=={version}"


def test_the_hashes_are_those_of_the_constraints() -> None:
    pinned = {name_of(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    text = (ROOT / "hashes.txt").read_text()
    packages = re.findall(r"^(\S+==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    assert "".join(f"{pin}{hashes}\n" for pin, hashes in packages) == text
    assert {name_of(pin) for pin, _ in packages} == pinned
