"""Tests of the journal, the file of the labels received so far: what is kept and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ucds.errors import DamagedFileError, InputError, RefusedError
from ucds.labels.journal import Journal, journal_path


def _open(path: Path, **changes: Any) -> Journal:
    return Journal(path, **{"url": "https://a.example", "model": "alpha", "n_clusters": 3} | changes)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = journal_path(tmp_path / "new" / "labels.json")
    with _open(path) as journal:
        journal.add({b"one": 0, b"two": 2})
        journal.add({b"three": 1})
    return path


def test_it_lies_beside_the_label_file_and_comes_back(written: Path) -> None:
    assert written.name == "labels.json.journal"
    with _open(written) as journal:
        assert journal.labels == {b"one": 0, b"two": 2, b"three": 1}
        journal.remove()
    assert not written.exists()


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_line_that_was_cut_short_is_dropped(written: Path, cut: int) -> None:
    written.write_bytes(written.read_bytes()[:-cut])
    with _open(written) as journal:
        assert journal.labels == {b"one": 0, b"two": 2}
        journal.add({b"four": 1})
    with _open(written) as journal:
        assert journal.labels == {b"one": 0, b"two": 2, b"four": 1}


def test_even_its_first_line_may_be_cut_short(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:20])
    with _open(written) as journal:
        journal.add({b"one": 1})
    with _open(written) as journal:
        assert journal.labels == {b"one": 1}


@pytest.mark.parametrize("change", [{"url": "https://b.example"}, {"model": "beta"}, {"n_clusters": 4}])
def test_labels_of_two_services_do_not_mix(written: Path, change: dict[str, Any]) -> None:
    before = written.read_bytes()
    with pytest.raises(RefusedError, match="labels of two services do not mix"):
        _open(written, **change)
    assert written.read_bytes() == before


def test_a_journal_without_labels_binds_nobody(tmp_path: Path) -> None:
    _open(tmp_path / "j").__exit__()
    with _open(tmp_path / "j", model="beta") as journal:
        journal.add({b"one": 1})
    with _open(tmp_path / "j", model="beta") as journal:
        assert journal.labels == {b"one": 1}


@pytest.mark.parametrize(
    "line",
    [
        "what?",
        '{"labels": {"00": 3}}',
        '{"labels": {"00": -1}}',
        '{"labels": {"00": 1.0}}',
        '{"labels": {"00": true}}',
        '{"labels": {"zz": 1}}',
        '{"labels": {"00": 1}, "scores": []}',
        "[1]",
        "{}",
    ],
)
def test_damage_in_the_middle_is_refused(written: Path, line: str) -> None:
    lines = written.read_text().splitlines(keepends=True)
    written.write_text(lines[0] + line + "\n" + "".join(lines[1:]))
    with pytest.raises(DamagedFileError, match="damaged: delete it to ask again"):
        _open(written)


@pytest.mark.parametrize("header", ["{}", '{"format": "ucds-journal/2"}', "[]", "\xff"])
def test_a_first_line_of_another_form_is_refused(written: Path, header: str) -> None:
    lines = written.read_text().splitlines(keepends=True)
    written.write_text(header + "\n" + "".join(lines[1:]))
    before = written.read_bytes()
    with pytest.raises(DamagedFileError, match="damaged"):
        _open(written)
    assert written.read_bytes() == before


def test_journals_of_earlier_versions_are_read(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(
        '{"format":"ucds-journal/1","url":"https://a.example","model":"alpha","n_clusters":3}\n'
        '{"labels":{"6f6e65":2}}\n'
    )
    with _open(tmp_path / "j") as journal:
        assert journal.labels == {b"one": 2}


def test_only_one_process_may_write(written: Path) -> None:
    with _open(written), pytest.raises(InputError, match="another process"):
        _open(written)
    _open(written)
