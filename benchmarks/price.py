"""Time of a training on vectors, beside that of another checkout, in one run that takes turns.

Each training is a process of its own that has trained once before the clock starts, so that start-up does not
count. Prints a table and writes it to price.md.

    python benchmarks/price.py CHECKOUT PYTHON [--sizes 3000 5000 20000 50000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from records import table

HERE = Path(__file__).parents[1]
TRAIN = """
import sys, time, warnings
import numpy as np
import ucds

warnings.simplefilter("ignore")
rng, count = np.random.default_rng(0), int(sys.argv[1])
vectors = rng.normal(size=(50, 64))[rng.integers(0, 50, count)] + rng.normal(size=(count, 64))
ucds.train_target(vectors[:300].astype(np.float32), "first", n_clusters=5)
wall, processor = time.perf_counter(), time.process_time()
ucds.train_target(vectors.astype(np.float32), "run", n_clusters=50)
print(time.perf_counter() - wall, time.process_time() - processor)
"""


def train(checkout: Path, python: str, count: int) -> tuple[float, float]:
    """Return the seconds of a training with a checkout, and those of all processors."""
    with tempfile.TemporaryDirectory() as place:
        env = os.environ | {"PYTHONPATH": str(checkout / "src"), "UCDS_CACHE": place}
        command = [python, "-c", TRAIN, str(count)]
        said = subprocess.run(command, cwd=place, env=env, check=True, capture_output=True, text=True).stdout
    wall, processor = map(float, said.split()[-2:])
    return wall, processor


def main() -> None:
    """Measure both sides in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="checkout of the other revision")
    parser.add_argument("python", help="interpreter of its environment")
    parser.add_argument("--sizes", type=int, nargs="+", default=[3000, 5000, 20_000, 50_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sides = (HERE, sys.executable), (given.checkout.resolve(), given.python)
    rows = []
    for count in given.sizes:
        rounds = [[train(where, python, count) for where, python in sides] for _ in range(given.rounds)]
        row = {"vectors": f"{count:,}"}
        for part, name in enumerate(("seconds", "of processors")):
            pairs = [(ours[part], theirs[part]) for ours, theirs in rounds]
            ours, theirs = (median(values) for values in zip(*pairs, strict=True))
            ratio = median(one / other for one, other in pairs)
            row |= {name: f"{ours:.1f}", f"{name}, before": f"{theirs:.1f}", f"{name}, ratio": f"{ratio:.2f}"}
        rows.append(row)
        print(row, flush=True)
    about = f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {given.rounds} rounds"
    lines = ["# What a training on vectors costs", "", about, "", table(rows, "rrrrrrr"), ""]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
