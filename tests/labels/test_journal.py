"""Tests of the journal, the file of the labels received so far: what is kept and what is refused."""

import hashlib
import os
import random
import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fake_service import RECEIPT

from ucds.errors import DamagedFileError, InputError, NoSpaceError, RefusedError, UcdsWarning
from ucds.labels.journal import Journal, KeptReceipt, journal_path, read_receipts
from ucds.labels.wire import Calibration, ServiceInfo

ONE, TWO, THREE, FOUR = (bytes([number]) * 16 for number in range(4))
LABELS = {ONE: 0, TWO: 2, THREE: 1}
INFO = ServiceInfo.model_construct(provider="alpha", model_digest="a" * 32, n_clusters=3, signer="5" * 64)


def _open(path: Path, url: str = "https://a.example", **changes: Any) -> Journal:
    return Journal(path, url=url, info=INFO.model_copy(update=changes))


def kept(labels: dict[bytes, int]) -> KeptReceipt:
    return KeptReceipt(receipt=RECEIPT, labels={key.hex(): label for key, label in labels.items()})


def line_of(content: str) -> str:
    """A line of a journal, with a true check."""
    return f"{hashlib.sha256(content.encode()).hexdigest()[:16]} {content}\n"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = journal_path(tmp_path / "new" / "labels.json")
    with _open(path) as journal:
        journal.add(kept({ONE: 0, TWO: 2}))
        journal.add(kept({THREE: 1}))
    return path


def test_it_lies_beside_the_label_file_comes_back_and_has_one_writer(written: Path) -> None:
    assert written.name == "labels.json.receipts"
    with _open(written) as journal:
        assert journal.labels == LABELS
        with pytest.raises(InputError, match="another process"):
            _open(written)
    assert [one.labels for one in read_receipts(written)] == [{ONE.hex(): 0, TWO.hex(): 2}, {THREE.hex(): 1}]


def test_an_answer_is_on_the_disk_when_it_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paid for: a machine that loses its power must not lose it."""
    sync, on_disk = os.fsync, []

    def told(file: int) -> None:
        sync(file)
        on_disk.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", told)
    path = journal_path(tmp_path / "labels.json")
    with _open(path) as journal:
        for key, label in LABELS.items():
            journal.add(kept({key: label}))
            assert on_disk[-1] == path.stat().st_size
    assert len(set(on_disk)) == len(LABELS) + 1  # with the header


@pytest.mark.parametrize("cut", [1, 2, 12, 24])
def test_a_line_that_was_cut_short_is_dropped(written: Path, cut: int) -> None:
    written.write_bytes(written.read_bytes()[:-cut])
    assert len(read_receipts(written)) == 1
    with _open(written) as journal:
        assert journal.labels == {ONE: 0, TWO: 2}
        journal.add(kept({FOUR: 1}))
    with _open(written) as journal:
        assert journal.labels == {ONE: 0, TWO: 2, FOUR: 1}


@pytest.mark.parametrize("provider", ["alpha", "beta"])
def test_a_journal_without_a_whole_line_of_labels_binds_nobody(written: Path, provider: str) -> None:
    first = written.read_bytes().splitlines(keepends=True)[0]
    for before in (first[:20], first):
        written.write_bytes(before)
        with _open(written, provider=provider) as journal:
            journal.add(kept({ONE: 1}))
        with _open(written, provider=provider) as journal:
            assert journal.labels == {ONE: 1}


OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"url": "https://b.example"}, r"address is https://a\.example, but now it is https://b\.example"),
    ({"provider": "beta"}, "the model is alpha, but now it is beta"),
    ({"n_clusters": 4}, "the number of clusters is 3, but now it is 4"),
    ({"model_digest": "b" * 32}, f"digest of the model is {'a' * 32}, but now it is {'b' * 32}"),
    ({"signer": "6" * 64}, f"the signing key is {'5' * 64}, but now it is {'6' * 64}"),
    ({"calibration": Calibration(samples=9, digest="c" * 32)}, f"is none, but now it is {'c' * 32}"),
]


@pytest.mark.parametrize(("change", "words"), OTHERS)
def test_labels_of_two_services_or_models_do_not_mix(
    written: Path, change: dict[str, Any], words: str
) -> None:
    before = written.read_bytes()
    with pytest.raises(RefusedError, match=f"{words}: such labels do not mix"):
        _open(written, **change)
    assert written.read_bytes() == before


WHOLE = kept({ONE: 1}).model_dump_json()


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        WHOLE.replace(":1}", ":-1}"),
        WHOLE.replace(":1}", ":true}"),
        WHOLE.replace(ONE.hex(), "zz"),
        WHOLE.replace('"labels"', '"scores":[],"labels"'),
        "{}",
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_damaged_line_is_dropped_and_said(written: Path, line: str, sealed: bool) -> None:
    lines = written.read_text().splitlines(keepends=True)
    written.write_text(lines[0] + (line_of(line) if sealed else line + "\n") + "".join(lines[1:]))
    with pytest.warns(UcdsWarning, match=r"1 of 3 lines of .*receipts are damaged; .* asked again"):
        journal = _open(written)
    assert journal.labels == LABELS
    journal.__exit__()


def test_any_changed_bit_is_found(written: Path) -> None:
    whole, labels = written.read_bytes(), LABELS
    generator = random.Random(0)
    for place in generator.sample(range(len(whole)), 60):
        changed = whole[place] ^ 1 << generator.randrange(8)
        written.write_bytes(whole[:place] + bytes([changed]) + whole[place + 1 :])
        with warnings.catch_warnings(action="ignore"), suppress(DamagedFileError), _open(written) as journal:
            assert journal.labels.items() < labels.items()


@pytest.mark.parametrize(
    "header", ["{}", '{"format": "ucds-receipts/0"}', "[]", "\xff", "[" * 100_000, line_of("{}").strip()]
)
@pytest.mark.parametrize("alone", [False, True])
def test_a_first_line_of_another_form_is_refused(written: Path, header: str, alone: bool) -> None:
    lines = written.read_text().splitlines(keepends=True)
    written.write_text(header + "\n" + "".join(lines[1:] if not alone else []))
    before = written.read_bytes()
    with pytest.raises(DamagedFileError, match="is not a journal: delete it to ask again"):
        _open(written)
    assert written.read_bytes() == before


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


NO_SPACE = r"cannot write .*labels\.json\.receipts: File too large; free some space, then run the same again"
MANY = {bytes([number]) * 16: 1 for number in range(10, 60)}


def test_a_full_disk_is_said_and_no_label_is_lost(written: Path) -> None:
    with full_at(10), pytest.raises(NoSpaceError, match=NO_SPACE):
        _open(journal_path(written.with_name("new.labels.json")))
    room = written.stat().st_size + 50
    with full_at(room), pytest.raises(NoSpaceError, match=NO_SPACE), _open(written) as journal:
        journal.add(kept(MANY))
    assert written.stat().st_size == room  # a part of the line
    with _open(written) as journal:
        assert journal.labels == LABELS
        with full_at(room), pytest.raises(NoSpaceError, match=NO_SPACE):
            journal.add(kept(MANY))
        journal.add(kept({FOUR: 2}))  # there is room again
    with _open(written) as journal:
        assert journal.labels == LABELS | MANY | {FOUR: 2}
