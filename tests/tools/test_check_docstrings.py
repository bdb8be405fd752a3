"""Tests of the check that entries of docstrings can be read alone."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_docstrings import main, refused_entries

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
'''


@pytest.mark.parametrize(
    ("seed", "reporter", "names"),
    [
        ("seed of the draws.", "receives progress messages.", []),
        ("of the draws.", "receives progress messages.", ["seed"]),
        ("Of the draws.", "whom to tell.", ["seed", "reporter"]),
        ("to start from.", "that is told.", ["seed", "reporter"]),
        ("offset of the draws.", "token of the service.", []),
    ],
)
def test_entries_that_begin_with_a_refused_word_are_found(seed: str, reporter: str, names: list[str]) -> None:
    found = [name for _, name, _ in refused_entries(FUNCTION.format(seed=seed, reporter=reporter))]
    assert found == names


def test_lines_are_those_of_the_file_and_attributes_count() -> None:
    source = 'class Point:\n    """A point.\n\n    Attributes:\n        x: of the plane.\n    """\n'
    assert list(refused_entries(source)) == [(5, "x", "of the plane.")]


def test_the_status_tells_whether_something_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text(FUNCTION.format(seed="seed of the draws.", reporter="a reporter."))
    assert main([tmp_path]) == 0
    (tmp_path / "bad.py").write_text(FUNCTION.format(seed="of the draws.", reporter="a reporter."))
    assert main([tmp_path]) == 1
    assert "bad.py:6: seed: of the draws." in capsys.readouterr().out
