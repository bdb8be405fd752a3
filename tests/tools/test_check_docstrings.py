"""Tests of the check that entries of docstrings can be read alone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_docstrings import refused_entries

CODE = '''
class Point:
    """A point.

    Attributes:
        x: Of the point.
        y: place of the point
            of which this second line says more.

    Returns:
        none: of no meaning here.
    """
'''


def test_entries_that_begin_with_a_refused_word_are_found() -> None:
    assert list(refused_entries(CODE)) == [(6, "x", "Of the point.")]
