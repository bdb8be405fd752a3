"""Lets the tests of reports import the small benchmarks of the tests of experiments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))  # for `grid_kit`
