"""A chain of updates that is killed anywhere and begun again equals one that was not."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ucds
from ucds.target.remembered import read_remembered

WEEKS = 4
CHAIN = """
import sys
from pathlib import Path
import ucds
place = Path(sys.argv[1])
for week in range(1, int(sys.argv[2]) + 1):
    if not (place / f"run{week}").exists():
        before = place / f"run{week - 1}"
        ucds.update(before, place / f"{week}.npy", place / f"run{week}", compute=ucds.Compute("cpu"))
"""


def chain(place: Path, *, killed_after: float | None = None) -> bool:
    """Do the updates that are not done yet; return whether all are done."""
    with subprocess.Popen([sys.executable, "-c", CHAIN, str(place), str(WEEKS)]) as process:
        try:
            return process.wait(killed_after) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False


@pytest.mark.slow
def test_a_chain_that_is_killed_and_begun_again_equals_one_that_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(5, 8))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    for week in range(WEEKS + 1):
        kind = rng.integers(4 + (week > 2), size=120 if week == 0 else 40)
        vectors = (centres[kind] + rng.normal(size=(len(kind), 8))).astype(np.float32)
        for name in ("whole", "killed"):
            np.save(tmp_path / name / f"{week}.npy", vectors)
    for name in ("whole", "killed"):
        first = tmp_path / name / "0.npy"
        ucds.train_target(first, tmp_path / name / "run0", n_clusters=4, compute=ucds.Compute("cpu"))
    began = time.monotonic()
    assert chain(tmp_path / "whole")
    whole, kills = time.monotonic() - began, 0
    while not chain(tmp_path / "killed", killed_after=float(rng.uniform(0.2, 0.7) * whole)):
        kills += 1
        assert kills < 40
    assert kills > 0
    for week in range(1, WEEKS + 1):
        one, other = (tmp_path / name / f"run{week}" for name in ("whole", "killed"))
        assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
        for file in ("votes.npz", "features.npy"):
            assert (one / file).read_bytes() == (other / file).read_bytes()
        prints = {ucds.load(run).stored.fingerprint for run in (one, other)}
        assert len(prints) == 1
    assert not list((tmp_path / "killed").glob(".*"))
    assert read_remembered(tmp_path / "killed" / f"run{WEEKS}")[0].n_clusters >= 4
