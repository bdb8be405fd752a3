"""Tests of the check that refuses phrases that have to be read twice."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from check_words import check_source, main


def test_a_refused_phrase_is_found_in_texts_comments_and_pages_but_not_in_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(check_source("raise InputError('Tell it by\\nanother way.')"))
    assert list(check_source("# Who only wants names types them.\n"))
    code = "# Page\n\n    so many\n\n```text\nso many\n```\n\n`so\nmany`\n\n"
    (tmp_path / "page.md").write_text(code)
    assert main([tmp_path]) == 0
    (tmp_path / "page.md").write_text(code + "1. a\n     so\n     many\n")
    assert main([tmp_path]) == 1
    assert "page.md:14: 'so many'" in capsys.readouterr().out


def test_a_message_is_two_sentences_at_most_and_short() -> None:
    assert not list(check_source("raise InputError(f'{a} is not a folder. Name one.')"))
    assert list(check_source("raise InputError('One. Two. Three.')"))
    assert list(check_source(f"warn({'word ' * 46!r})"))
