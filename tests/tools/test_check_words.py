"""Tests of the check that refuses phrases that have to be read twice."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_words import check_page, check_source, main


@pytest.mark.parametrize(
    "sentence",
    [
        "Of more than 10,000 images so many are shown, drawn at random",
        "Who only wants names types them in the report.",
        "Tell it to your clients by\nanother way.",
    ],
)
def test_sentences_that_have_to_be_read_twice_are_refused(sentence: str) -> None:
    assert list(check_page(f"# Page\n\nText.\n\n    code\n\n- {sentence}\n")) != []
    assert list(check_source(f"raise InputError({sentence!r})")) != []
    assert list(check_source(f"# {' '.join(sentence.split())}\n")) != []


def test_a_message_is_two_sentences_at_most_and_short() -> None:
    assert not list(check_source("raise InputError(f'{a} is not a folder. Name one.')"))
    assert list(check_source("raise InputError('One. Two. Three.')"))
    assert list(check_source(f"warn({'word ' * 46!r})"))


def test_code_on_a_page_is_not_read_and_the_line_of_what_is_found_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "# Page\n\n    so many\n\n```text\nso many\n```\n\n`so\nmany`\n\n"
    (tmp_path / "page.md").write_text(code)
    assert main([tmp_path]) == 0
    (tmp_path / "page.md").write_text(code + "1. a\n     so\n     many\n")
    assert main([tmp_path]) == 1
    assert "page.md:14: 'so many'" in capsys.readouterr().out
