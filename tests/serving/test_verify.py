"""Every change of a ledger is found: of columns and rows, by entries against the rules, by setting back."""

import itertools
import json
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_kit import MODELS, Provider, behind, charge, content, forge, forge_charge, make_key, set_back
from sqlalchemy import Connection, Table, select
from sqlalchemy.exc import IntegrityError

from ucds.errors import DamagedFileError, InputError, UserError
from ucds.labels.journal import KeptReceipt, read_receipts
from ucds.labels.wire import Calibration, Receipt, answers_digest
from ucds.serving import log
from ucds.serving.ledger import Ledger
from ucds.serving.log import Entry
from ucds.serving.signing import Signer
from ucds.serving.state import Statement
from ucds.serving.verify import archive, verify

TABLES = {"log": log.log, "answers": log.answers, "means": log.means}
COLUMNS = [(name, column.name) for name, table in TABLES.items() for column in table.columns]
FUTURE, PAST = "2999-01-01T00:00:00.000+00:00", "1999-01-01T00:00:00.000+00:00"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a signing key and a ledger in which everything has happened, a snapshot in the middle."""
    folder = tmp_path_factory.mktemp("pattern")
    signer, book = Signer.open(folder / "key.pem"), Ledger(folder, create=True)
    book.trust(signer.public)
    asked = {"anna": ([1, 2, 3], [2]), "bert": ([2],), "carl": ([1],)}
    for name, questions in asked.items():
        key = make_key(book, 50, name, rate=2.0 if name == "bert" else None)
        for model, numbers in zip(MODELS, questions, strict=False):
            labels = {content(number): number + len(name + model) % 7 for number in numbers}
            book.charge(key, model, list(labels), labels, request="r")
        told = Calibration(samples=40, digest=name[:4].encode().hex() * 4)
        book.calibrate(key, "c" * 32, told, np.full(3, key.number, np.float32))
    book.take_snapshot(signer)
    charge(book, key, 1, 5, label=3)
    book.renew_key("anna")
    book.set_key("bert", budget=60, networks=["10.0.0.0/8"])
    book.revoke_key("carl")
    book.close()
    assert verify(folder).faults == ()
    return folder


@pytest.fixture
def full(pattern: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(pattern, tmp_path, dirs_exist_ok=True)
    return tmp_path


class Tampering:
    """A ledger that is as it was after each change."""

    def __init__(self, place: Path) -> None:
        self.place, self._file = place, place / "ledger.sqlite"
        self._whole = self._file.read_bytes()

    def faults(
        self, change: Callable[[Connection], object], use: Callable[[], object] = lambda: None
    ) -> tuple[str, ...]:
        """The faults after a change and a use; the refusal of the database counts as one."""
        try:
            with behind(self.place) as connection:
                change(connection)
            use()
            return verify(self.place).faults
        except (IntegrityError, DamagedFileError) as error:
            return (str(error),)
        finally:
            for path in self.place.glob("ledger.sqlite-*"):
                path.unlink()
            self._file.write_bytes(self._whole)

    def rows(self, table: Table) -> Rows:
        ordered = select(table).order_by(*table.primary_key)
        with behind(self.place) as connection:
            return [dict(row) for row in connection.execute(ordered).mappings()]


@pytest.fixture
def tampering(full: Path) -> Tampering:
    return Tampering(full)


def replace(table: Table, old: Rows, new: Rows, connection: Connection) -> None:
    for row in old:
        same = [table.c[column.name] == row[column.name] for column in table.primary_key]
        assert connection.execute(table.delete().where(*same)).rowcount == 1
    if new:
        connection.execute(table.insert(), new)


def others(value: Any) -> list[Any]:
    """Other values that a column could hold."""
    if isinstance(value, bytes):
        return [bytes(16), value[::-1] if value != value[::-1] else b"x" * 16]
    if isinstance(value, str):
        return [value + "0", value[:-1] + chr(ord(value[-1]) ^ 1)]
    return [value + 1000, value - 1]


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_each_column_changed_exchanged_or_of_another_type(
    tampering: Tampering, name: str, column: str
) -> None:
    table = TABLES[name]
    rows = tampering.rows(table)
    for row in rows:
        value = others(row[column])[-1]
        assert tampering.faults(partial(replace, table, [row], [{**row, column: value}])), (row, value)
    for one, other in itertools.pairwise([] if table is log.log else rows):
        changed = [{**one, column: other[column]}, {**other, column: one[column]}]
        if changed not in ([one, other], [other, one]):
            assert tampering.faults(partial(replace, table, [one, other], changed)), (one, other)

    # SQLite keeps any value in any column: the check finds it, and a service gives no wrong answer.
    contents = [content(number) for number in (1, 2, 3)]
    where = "number = 4" if name == "log" else "key = 1"

    def ask() -> tuple[dict[bytes, int], list[float]]:
        with closing(Ledger(tampering.place)) as book:
            key = book.list_keys()[0]
            mean = book.mean(key, "c" * 32)
            return book.find_answers(key, MODELS[0], contents).labels, [] if mean is None else mean.tolist()

    def change(value: object, connection: Connection) -> None:
        connection.exec_driver_sql(f"UPDATE OR REPLACE {name} SET {column} = ? WHERE {where}", (value,))

    def use() -> None:
        with suppress(UserError):
            labels, mean = ask()
            assert labels.items() <= good[0].items()
            assert mean == good[1]

    good = ask()
    for value in ("x", b"x", 0.5, 7, 2**62):
        assert tampering.faults(partial(change, value), use), value


@pytest.mark.parametrize("name", TABLES)
def test_each_row_dropped_or_added(tampering: Tampering, name: str) -> None:
    table = TABLES[name]
    for number, row in enumerate(found := tampering.rows(table), 1):
        if table is log.answers or number < len(found):  # the last entry alone is seen only from elsewhere
            assert tampering.faults(partial(replace, table, [row], [])), row
        for key in table.primary_key:
            value = others(row[key.name])[0]
            assert tampering.faults(partial(replace, table, [], [{**row, key.name: value}])), row
    assert tampering.faults(partial(replace, table, found, []))
    answer = {"key": 1, "model": MODELS[0], "content": content(99), "label": 1}
    for entry in (-1, 0, 1, 2, 99):  # which gave none
        assert tampering.faults(partial(replace, log.answers, [], [answer | {"entry": entry}])), entry


def test_a_chain_computed_anew_breaks_its_snapshot(tampering: Tampering) -> None:
    def change(connection: Connection) -> None:
        """Change an entry, and compute the hashes as somebody would who knows this package."""
        connection.execute(log.log.update().filter_by(number=3).values(operator="mallory"))
        last = log.GENESIS
        for entry in list(log.read_entries(connection)):
            last = Entry.after(last, entry.number, entry.time, entry.operator, entry.kind, entry.body).hash
            connection.execute(log.log.update().filter_by(number=entry.number).values(hash=last))

    (fault,) = tampering.faults(change)
    assert "holds a state that the log does not have" in fault


BROKEN: dict[str, tuple[str, Callable[[Connection], object]]] = {
    "over the budget": ("charges 51", lambda c: forge_charge(c, 1, list(range(100, 147)))),
    "a budget of its own": ("form", lambda c: forge_charge(c, 1, [100], budget=99)),
    "revoked": ("after it was revoked", lambda c: forge_charge(c, 3, [100])),
    "ended": ("after its end", lambda c: forge_charge(c, 2, [100], time=FUTURE)),
    "unknown key": ("which does not exist", lambda c: forge_charge(c, 9, [100])),
    "calibration": (
        "a calibration that its key does not have",
        lambda c: forge_charge(c, 1, [100], calibration="0" * 32),
    ),
    "time going back": ("is dated before", lambda c: forge_charge(c, 1, [100], PAST)),
    "no time": (
        "has a time in another form",
        lambda c: forge_charge(c, 1, [100], "9999-01-01 00:00:00.000+00:00"),
    ),
    "to come": ("in the future", lambda c: forge_charge(c, 1, [100], FUTURE)),
    "nothing charged": ("form", lambda c: forge(c, "Answered", _answered(charged=0))),
    "less than nothing": ("form", lambda c: forge(c, "Answered", _answered(charged=-5))),
    "use set to 0": ("form", lambda c: forge(c, "KeySet", {"key": 1, "terms": {"budget": 9}, "used": 0})),
    "begun again": ("out of order", lambda c: forge(c, "Begun", {"rules": 1})),
    "other rules": ("form", lambda c: forge(c, "Begun", {"rules": 2})),
    "unknown kind": ("form", lambda c: forge(c, "Gift", {"key": 1})),
    "no JSON": ("form", lambda c: forge(c, "KeyRevoked", "[" * 100_000)),
    "a key twice": ("exists already", lambda c: forge(c, "KeyAdded", _added("anna", 4))),
    "a number twice": ("exists already", lambda c: forge(c, "KeyAdded", _added("dora", 1))),
    "revoked twice": ("after it was revoked", lambda c: forge(c, "KeyRevoked", {"key": 3})),
    "forgotten alive": ("not revoked", lambda c: forge(c, "Forgotten", {"key": 1})),
    "a network that is none": ("form", lambda c: forge(c, "KeyAdded", _added("dora", 4, networks=["here"]))),
    "a mean that is not there": ("means of cal", lambda c: forge(c, "Calibrated", _calibrated("e"))),
    "calibrated after answers": ("or after answers", lambda c: forge(c, "Calibrated", _calibrated("a"))),
    "archived by no snapshot": ("last snapshot", lambda c: forge(c, "Archived", {"first": 5})),
    "answers that are not there": ("are gone", lambda c: forge(c, "Answered", _answered(charged=1))),
    "forgotten, not deleted": ("was forgotten", lambda c: forge(c, "Forgotten", {"key": 3})),
}
ONLY_THE_CHECK = (
    "answers that are not there",
    "forgotten, not deleted",
    "a mean that is not there",
    "to come",
)
"""Only the check compares all answers and means with their entries, and the last time with the clock."""


def _answered(charged: int) -> dict[str, Any]:
    return {"key": 1, "model": MODELS[0], "charged": charged, "digest": "0" * 64, "request": "r"}


def _added(name: str, key: int, **terms: Any) -> dict[str, Any]:
    secret = {"hash": "1" * 64, "tail": "abcd"}
    return {"key": key, "name": name, "terms": {"budget": 9} | terms, "secret": secret}


def _calibrated(model: str, mean: str = "0" * 64) -> dict[str, Any]:
    told = {"samples": 9, "digest": "0" * 32}
    return {"key": 1, "model": model * 32, "calibration": told, "mean": mean}


@pytest.mark.parametrize("name", BROKEN)
def test_an_entry_that_is_hashed_well_and_breaks_a_rule(full: Path, name: str) -> None:
    """Found by the check, by a service that runs, and by one that starts."""
    words, change = BROKEN[name]
    book = Ledger(full)
    book.set_key("bert", expires="2998-01-01")
    key = book.authenticate(book.renew_key("anna"))
    with behind(full) as connection:
        change(connection)
    uses: list[Callable[[], object]] = [lambda: charge(book, key, 7), book.list_keys, lambda: Ledger(full)]
    if name in ONLY_THE_CHECK:
        uses = []
    for use in uses:
        with pytest.raises(UserError):
            use()
    assert words in verify(full).faults[0]
    book.close()


@pytest.mark.parametrize("what", ["state", "signer", "alone"])
def test_a_snapshot_of_another_state_or_signer_is_refused(full: Path, what: str) -> None:
    """Found by the check, by a service that runs, and a stranger's by one that starts."""
    ours, other = (Signer.open(full / f"{name}.pem") for name in ("key", "other"))
    by, changes, words = {
        "state": (ours, {"keys": {}}, "a state that the log does not have"),
        "signer": (other, {}, "if that was your key"),
        "alone": (other, {"keys": {}}, "as `signer`"),
    }[what]
    with closing(Ledger(full)) as book:
        book.trust(ours.public)
        forged = book.state().model_copy(update=changes)
        fields = {"number": forged.number, "hash": forged.hash, "time": forged.time, "era": 0}
        told = by.sign(Statement, **fields, state=forged.digest())
        with behind(full) as connection:
            body = {"statement": told.model_dump(), "state": json.loads(forged.model_dump_json())}
            entry = forge(connection, "Snapshot", body)
            if what == "alone":  # in place of the log
                connection.execute(log.log.delete().where(log.log.c.number < entry.number))
        with pytest.raises(DamagedFileError):
            book.list_keys()
    assert words in verify(full, signers=[ours.public]).faults[0]
    if by is other:
        with closing(Ledger(full)) as book, pytest.raises(DamagedFileError, match="as `signer`"):
            book.trust(ours.public)
    assert ("as `signer`" in " ".join(verify(full).faults)) == (what == "alone")


@pytest.mark.parametrize(("back", "added"), [(1, 0), (1, 1), (1, 3), (3, 1), (6, 0), (6, 9)])
def test_a_log_set_back_under_a_service(ledger: Ledger, tmp_path: Path, back: int, added: int) -> None:
    key = make_key(ledger, 100)
    for number in range(6):
        charge(ledger, key, number)
    with behind(tmp_path) as connection:
        set_back(connection, 8 - back)
        for number in range(added):
            forge_charge(connection, 1, [1000 + number])
    repeat = partial(ledger.find_answers, key, MODELS[0], [])
    for use in (ledger.list_keys, lambda: charge(ledger, key, 2000), repeat):
        with pytest.raises(DamagedFileError, match="set back"):
            use()
    assert verify(tmp_path).faults == ()  # nothing but what is kept elsewhere shows it


def test_a_log_set_back_is_found_by_all_that_is_kept_elsewhere(provider: Provider) -> None:
    key, place = make_key(provider.ledger, 100), provider.folder
    for number in range(6):
        provider.keep(key, number)
    provider.snapshots().close()
    checks = (
        partial(verify, place, signers=[provider.signer.public], checkpoints=[provider.marks]),
        partial(verify, place, signers=[provider.signer.public], receipts=[provider.receipts]),
    )
    for check in checks:
        assert (check().faults, check().unnamed) == ((), 0)
    charge(provider.ledger, key, 50)
    assert checks[0]().unnamed == 2  # a snapshot and a charge
    for last in (7, 5, 3):
        provider.restore(last)
        assert verify(place).faults == ()
        for check in checks:
            faults = check().faults
            assert faults
            assert all("not in the log" in fault for fault in faults)


def test_statements_are_compared_word_for_word(provider: Provider, tmp_path: Path) -> None:
    signer, other = provider.signer, Signer.open(tmp_path / "other.pem")
    told = provider.ledger.take_snapshot(signer)

    def faults(by: Signer, **changes: Any) -> str:
        fields = told.model_dump(exclude={"signer", "signature", "format"}) | changes
        provider.marks.write_text(by.sign(Statement, **fields).model_dump_json() + "\n")
        return " ".join(provider.verify().faults)

    assert faults(signer) == ""
    assert "another key than the provider's" in faults(other)
    assert "not in the log" in faults(signer, hash="0" * 64)
    assert "not in the log" in faults(signer, number=told.number + 9)


def test_receipts_are_compared_word_for_word(provider: Provider, tmp_path: Path) -> None:
    other = Signer.open(tmp_path / "other.pem")
    provider.keep(make_key(provider.ledger), 1)
    (kept,) = read_receipts(provider.receipts)
    changed = {content(1).hex(): 2}

    def faults(by: Signer = provider.signer, labels: dict[str, int] = kept.labels, **changes: Any) -> str:
        told = kept.receipt.model_dump(exclude={"signer", "signature", "format"}) | changes
        receipt = by.sign(Receipt, **told)
        provider.receipts.unlink()
        provider.write(KeptReceipt(receipt=receipt, labels=labels))
        return " ".join(provider.verify().faults)

    assert faults() == ""
    assert "another key than the provider's" in faults(other)
    assert "labels other than those" in faults(labels=changed)
    assert "not in the log" in faults(entries=["0" * 64])
    assert "other answers" in faults(model_digest=MODELS[1])
    assert "other answers" in faults(privacy="epsilon 1.0, delta 1e-05, for each person")
    assert "other answers" in faults(labels=changed, answers_digest=answers_digest([(content(1), 2)]))
    provider.receipts.unlink()
    spoiled = kept.receipt.model_copy(update={"signature": "0" * 128})
    provider.write(kept.model_copy(update={"receipt": spoiled}))
    assert "a wrong signature" in provider.verify().faults[0]


def test_the_running_service_finds_changed_answers_when_it_gives_them_again(full: Path) -> None:
    contents = [content(1), content(2)]
    for change in (
        log.answers.update().filter_by(key=1, content=content(3)).values(label=0),
        log.answers.delete().filter_by(key=1, content=content(3)),
        log.log.update().filter_by(number=3).values(operator="mallory"),
    ):
        with closing(Ledger(full)) as book:  # each one stops at the first check that fails
            key = book.list_keys()[0]
            with behind(full) as connection:
                connection.execute(change)
            with pytest.raises(DamagedFileError, match="entry 3 was changed|answers of entry 3"):
                book.find_answers(key, MODELS[0], contents)


def test_archived_entries_are_read_from_their_files(provider: Provider, tmp_path: Path) -> None:
    ledger, idle, receipts = provider.ledger, Ledger(tmp_path), [provider.receipts]
    key, files = make_key(ledger), [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    with pytest.raises(InputError, match="nothing to archive"):
        archive(ledger, files[0])
    for number, file in enumerate(files):
        provider.keep(key, number)
        provider.snapshots().close()
        charge(ledger, key, 7, number + 8)
        assert archive(ledger, file) > 0
        assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="there already"):
        archive(ledger, files[0])
    provider.keep(key, 1, 9)  # free: their entries are archived
    later = Ledger(tmp_path)
    for book in (idle, later):  # a replica that saw nothing of it, and one that opens now
        assert book.list_keys()[0].used == 5
        book.close()
    signers = [provider.signer.public]
    assert "begins the log" in verify(tmp_path).faults[0]
    without = verify(tmp_path, signers=signers)
    assert (without.faults, without.first > 1) == ((), True)
    whole = verify(tmp_path, signers=signers, receipts=receipts, checkpoints=[provider.marks], archives=files)
    assert (whole.faults, whole.first, whole.agreed) == ((), 1, 5)
    assert "give the archives" in verify(tmp_path, signers=signers, receipts=receipts).faults[0]
    assert "give the archives" in verify(tmp_path, signers=signers, checkpoints=[provider.marks]).faults[0]
    later_alone = verify(tmp_path, signers=signers, archives=files[1:])
    assert (later_alone.faults, 1 < later_alone.first < without.first) == ((), True)
    assert "is missing" in verify(tmp_path, signers=signers, archives=files[:1]).faults[0]
    with behind(tmp_path) as connection:
        connection.execute(log.answers.update().values(label=9))
    assert "answers of entry 3 were changed" in verify(tmp_path, signers=signers, archives=files).faults[0]
    with pytest.raises(DamagedFileError, match="stays as it is"):
        archive(ledger, tmp_path / "3.jsonl")
    assert not (tmp_path / "3.jsonl").exists()
    files[0].write_text("[1, 2]\n")
    with pytest.raises(DamagedFileError, match="not an archive"):
        verify(tmp_path, signers=signers, archives=files)
