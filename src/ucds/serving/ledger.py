"""Keys, budgets and answers: the record of all labels given, exact under any number of writers.

The labels are computed first. Then one transaction checks the budget again, keeps the answers and
appends to the log; only when it is on disk does the client get them. After a crash before that moment
nothing is charged; after a crash later, the answers are kept and free when asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from ucds.errors import DamagedFileError, InputError
from ucds.labels.receipts import answers_digest
from ucds.labels.wire import Budget
from ucds.serving import audit, calibration, credentials, database, keys, migration, tables
from ucds.serving.audit import Head
from ucds.serving.book import Book
from ucds.serving.keys import KeyEnded, KeyRecord
from ucds.serving.rate import FileBuckets, RateLimiter, Rates, SharedRateLimiter
from ucds.serving.verification import Claim, Verdict, verify

GRACE = timedelta(hours=24)
_MOST_ASKED = 10_000  # contents in one statement: SQLite takes 32,766 values, PostgreSQL 65,535


class OverBudget(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A request asks for more samples than are left; no label of it is given.

    Args:
        budget: budget of the key.
        new: samples of the request that were not asked before.
    """

    def __init__(self, budget: Budget, new: int) -> None:
        super().__init__(
            f"The request holds {new:,} samples not asked before, but the key's budget has "
            f"{budget.remaining:,} left; nothing was charged."
        )
        self.budget = budget


class MeanChanged(Exception):  # noqa: N818
    """The key was calibrated while its samples were labelled from the model's own mean."""


@dataclass(frozen=True)
class Charge:
    """The result of one charge.

    Attributes:
        labels: label of every content asked about.
        budget: budget of the key after the charge.
        entry: entry of the charge in the log.
        time: time of the charge, ISO 8601 in UTC.
        digest: digest of all answers given; see `ucds.labels.receipts.answers_digest`.
    """

    labels: dict[bytes, int]
    budget: Budget
    entry: Head
    time: str
    digest: str


class Ledger(Book):
    """The ledger of one service or of several replicas; see :class:`Book` for its place and its errors."""

    def add_key(
        self, name: str, budget: int, rate: float | None = None, *, expires: datetime | None = None
    ) -> str:
        """Make a key and return its secret, this once; the ledger keeps its hash alone.

        Args:
            name: name of its holder, up to 64 letters, digits and ``. _ @ -``.
            budget: distinct samples that may be labelled.
            rate: samples a second; ``None`` without bound.
            expires: end of the key; ``None`` if it does not end by itself.

        Raises:
            InputError: the name is taken or unusable, or a number is out of range.
        """
        keys.check_terms(name, budget, rate)
        secret = credentials.make_secret()
        with self.writing() as writing:
            if keys.is_taken(writing.connection, name):
                raise InputError(f"there is a key of the name {name!r} already: revoke it, or choose another")
            number = (writing.connection.execute(select(func.max(tables.keys.c.id))).scalar() or 0) + 1
            terms = {
                "name": name,
                "budget": budget,
                "rate": rate,
                "expires": expires and keys.as_text(expires),
            }
            writing.append("key-added", key=number, **terms, **_shown(secret))
        return secret

    def rotate_key(self, name: str, grace: timedelta = GRACE) -> str:
        """Give a key a new secret and return it; its last one stays valid for some time.

        Args:
            name: name of the key.
            grace: time for which the secret that the new one replaces stays valid. A secret that was replaced
                before ends at once.

        Raises:
            InputError: there is no key of that name, or it is revoked.
        """
        secret = credentials.make_secret()
        with self.writing() as writing:
            key = keys.find_named(writing.connection, name)
            end = keys.as_text(datetime.now(UTC) + max(grace, timedelta(0)))
            ending = {
                old: end if already is None else writing.time
                for old, already in keys.valid_secrets(writing.connection, key.number).items()
            }
            writing.append("key-rotated", key=key.number, ending=ending, **_shown(secret))
        return secret

    def change_key(self, name: str, **changes: Any) -> None:
        """Change the terms of a key from the next request on.

        Args:
            name: name of the key.
            **changes: new terms: ``budget``, ``rate`` and ``expires``, as `add_key` takes them.

        Raises:
            InputError: there is no key of that name, or it is revoked; or a number is out of range.
        """
        with self.writing() as writing:
            key = keys.find_named(writing.connection, name)
            keys.check_terms(name, changes.get("budget", key.limit), changes.get("rate", key.rate))
            if changes.get("expires") is not None:
                changes["expires"] = keys.as_text(changes["expires"])
            writing.append("key-changed", key=key.number, changes=changes)

    def revoke_key(self, name: str) -> None:
        """Make a key worthless from the next request on; its name may be used again.

        Raises:
            InputError: there is no key of that name, or it is revoked already.
        """
        with self.writing() as writing:
            key = keys.find_named(writing.connection, name).number
            writing.append("key-revoked", key=key)

    def list_keys(self) -> list[KeyRecord]:
        """Return all keys, revoked ones too, in the order in which they were made."""
        with self.transaction() as connection:
            return keys.list_all(connection)

    def find_key(self, secret: str) -> KeyRecord | None:
        """Return the record of the key whose secret a client shows, or ``None`` if there is no such key."""
        if credentials.is_mistyped(secret):
            return None
        with self.transaction() as connection:
            return keys.find_by_secret(connection, secret)

    def make_rates(self, shared: int | None = None) -> Rates:
        """Make the token buckets of the keys: shared by all replicas where the database is PostgreSQL.

        Args:
            shared: open file in which several processes share them otherwise, by its number.
        """
        if self.url.get_backend_name() == "postgresql":
            return SharedRateLimiter(self.transaction)
        return RateLimiter() if shared is None else RateLimiter(buckets=FileBuckets(shared))

    def set_signer(self, public: str, *, replace: bool = False) -> None:
        """Record the public key that signs receipts from now on, if it is not recorded yet.

        Args:
            public: public key in hexadecimal digits.
            replace: whether it may replace another one.

        Raises:
            InputError: another key signs the receipts of this ledger.
        """
        with self.writing() as writing:
            present = audit.current_signer(writing.connection)
            if present == public:
                return
            if present is not None and not replace:
                raise InputError(
                    f"the receipts of this ledger are signed with the key {present[:16]}.., not with "
                    f"{public[:16]}..: give its file as --signing-key, or change it with "
                    "`ucds ledger sign-with`"
                )
            writing.append("signer-set", signer=public)

    def known(self, key: KeyRecord, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the answers that this key was given before; they are free.

        Raises:
            OverBudget: the other samples are more than the budget has left.
        """
        with self.transaction() as connection:
            found = _known(connection, key.number, model, contents)
            _check_budget(keys.find(connection, key.number) or key, len(set(contents)) - len(found))
        return found

    def charge(
        self,
        key: KeyRecord,
        model: str,
        contents: Sequence[bytes],
        computed: Mapping[bytes, int],
        request: str | None = None,
        privacy: str | None = None,
        calibrated: str | None = None,
    ) -> Charge:
        """Charge for the answers that are new, and record that all of them are given.

        Whatever is raised, nothing is charged.

        Args:
            key: key to charge.
            model: digest of the model that answered.
            contents: content keys of the request's samples.
            computed: label of each content that was not known before.
            request: id of the request, for the log.
            privacy: guarantee that the model carries, for the log; ``None`` without one.
            calibrated: digest of the calibration with which ``computed`` was labelled; ``None`` without one.

        Returns:
            The charge. A content that another request asked for meanwhile has the label which that request
            got.

        Raises:
            OverBudget: the new samples are more than the budget has left.
            KeyEnded: the key was revoked meanwhile, or its time is over.
            MeanChanged: the key was calibrated meanwhile.
        """
        with self.writing() as writing:
            record = keys.find(writing.connection, key.number)
            if record is None or not record.is_active:
                raise KeyEnded
            if calibrated != calibration.find_digest(writing.connection, key.number, model):
                raise MeanChanged
            labels = _known(writing.connection, key.number, model, contents)
            new = {content: computed[content] for content in dict.fromkeys(contents) if content not in labels}
            _check_budget(record, len(new))
            if new:
                entry = writing.head.entries + 1
                shared = {"key_id": key.number, "model": model, "entry": entry}
                rows = [{"content": content, "label": label} | shared for content, label in new.items()]
                writing.connection.execute(tables.answers.insert(), rows)
            labels |= new
            given, used = answers_digest(labels.items()), record.used + len(new)
            counts = {"asked": len(contents), "charged": len(new), "used": used}
            digests = {"digest": answers_digest(new.items()), "given": given}
            told = counts | digests
            told |= {} if privacy is None else {"privacy": privacy}
            told |= {} if calibrated is None else {"calibration": calibrated}
            writing.append("answered", key=key.number, model=model, request=request, **told)
        budget = Budget(limit=record.limit, used=used, remaining=max(0, record.limit - used))
        return Charge(labels, budget, writing.head, writing.time, given)

    def verify(self, anchor: Head | None = None, claims: Sequence[Claim] = ()) -> Verdict:
        """Check the whole audit log, and the tables against it.

        Args:
            anchor: head that an earlier check returned; the log must contain it.
            claims: statements of receipts and checkpoints about the log.
        """
        anchors = [] if anchor is None else [Claim("the anchor", anchor)]
        with self.transaction() as connection:
            if connection.dialect.name == "postgresql":  # all statements see the same moment
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return verify(connection, [*anchors, *claims])


def migrate(place: str | Path) -> None:
    """Bring a ledger of an older format to the present one, in one transaction.

    Raises:
        InputError: there is no ledger, or it has the present format.
        DamagedFileError: the ledger does not agree with its own log; nothing was changed.
        UserError: the database cannot be used; `Ledger` names the kinds.
    """
    url = database.ledger_url(place)
    engine = database.connect(url, create=False)
    try:
        with (
            database.explaining("the ledger cannot be migrated"),
            engine.execution_options(**{database.WRITES: True}).begin() as connection,
        ):
            migration.migrate(connection, keys.now())
            faults = verify(connection, []).faults
            if faults:
                raise DamagedFileError(
                    f"the ledger does not agree with its log, so it stays as it is: {faults[0]}"
                )
    finally:
        engine.dispose()


def _shown(secret: str) -> dict[str, str]:
    """Return what the log holds of a secret."""
    return {"secret": credentials.hash_secret(secret), "tail": secret[-4:]}


def _known(connection: Connection, key: int, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
    table, wanted = tables.answers.c, list(set(contents))
    found: dict[bytes, int] = {}
    for start in range(0, len(wanted), _MOST_ASKED):
        asked = select(table.content, table.label).filter_by(key_id=key, model=model)
        some = table.content.in_(wanted[start : start + _MOST_ASKED])
        found |= {bytes(content): label for content, label in connection.execute(asked.where(some))}
    return found


def _check_budget(key: KeyRecord, new: int) -> None:
    if new > 0 and key.used + new > key.limit:
        raise OverBudget(key.budget, new)
