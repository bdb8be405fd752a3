"""Tests of the check that entries of docstrings can be read alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_docstrings import main

FUNCTION = '''
def draw(seed: int, reporter: object) -> None:
    """Draw samples.

    Args:
        seed: {seed}
        reporter: {reporter}
            of which this second line says more.

    Returns:
        of no meaning here.
    """


class Point:
    """A point.

    Attributes:
        x: place of the point.
    """
'''


@pytest.mark.parametrize(
    ("seed", "reporter", "found"),
    [
        ("seed of the draws.", "receives progress messages.", []),
        ("offset of the draws.", "token of the service.", []),
        ("of the draws.", "receives progress messages.", ["6: seed"]),
        ("Of the draws.", "whom to tell.", ["6: seed", "7: reporter"]),
    ],
)
def test_entries_that_begin_with_a_refused_word_are_found(
    seed: str, reporter: str, found: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text(FUNCTION.format(seed=seed, reporter=reporter))
    assert main([tmp_path]) == bool(found)
    told = capsys.readouterr().out
    assert [place for place in ("6: seed", "7: reporter", "18: x") if f"code.py:{place}: " in told] == found
