"""Tests of the check that entries of docstrings can be read alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_docstrings import main, refused_entries

CODE = '''
def draw(seed: int, number: int, reporter: object) -> None:
    """Draw samples.

    Args:
        seed: Of the draws.
        number: number of draws
            of which this second line says more.
        reporter: whom to tell.

    Returns:
        none: of no meaning here.
    """


class Point:
    """A point.

    Attributes:
        x: place of the point.
        y: of the point.
    """
'''


def test_entries_that_begin_with_a_refused_word_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [entry[:2] for entry in refused_entries(CODE)] == [(6, "seed"), (9, "reporter"), (21, "y")]
    (tmp_path / "code.py").write_text(CODE)
    assert main([tmp_path]) == 1
    assert "code.py:21: y: of the point." in capsys.readouterr().out
    (tmp_path / "code.py").write_text("def draw() -> None: ...")
    assert main([tmp_path]) == 0
