"""The ledger of a label service: who may ask, how much, and what was answered; exact with many writers.

The labels are computed first. Then one transaction reads the log to its end, checks the budget again, keeps
the answers and appends to the log. The client gets the answers only when the transaction is on disk. If the
service crashes earlier, nothing is charged; if it crashes later, the answers are kept, and asking again is
free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import Connection

from ucds.errors import InputError, brief
from ucds.files import digest_of
from ucds.labels.wire import Balance, Calibration, Receipt, answers_digest
from ucds.math.arrays import FloatArray
from ucds.serving import keys, log, state
from ucds.serving.problems import Refusal
from ucds.serving.replay import Replay
from ucds.serving.signing import Signer
from ucds.serving.state import State

_MEAN_TYPE = "<f4"
BURST = 10.0
"""Number of seconds of its rate that a key may save up."""


@dataclass(frozen=True)
class Answers:
    """The answers that the ledger holds for a key."""

    labels: dict[bytes, int]  # of each content asked about, as far as it is known
    entries: tuple[str, ...]  # hashes of the log's entries that charged for them, sorted
    era: int
    time: str  # of the last of these entries
    balance: Balance

    def receipt(self, signer: Signer, model: str, privacy: str | None = None) -> Receipt:
        """Return the receipt for these answers of a model, with the model's privacy guarantee."""
        return signer.sign(
            Receipt,
            entries=list(self.entries),
            era=self.era,
            time=self.time,
            model_digest=model,
            answers_digest=answers_digest(self.labels.items()),
            privacy=privacy,
        )


class Ledger(Replay):
    """The ledger of one service or of several replicas; :class:`Replay` explains arguments and errors."""

    def add_key(self, name: str, budget: int, **terms: Any) -> str:
        """Make a key and return its secret, only this once; the ledger keeps only the secret's hash.

        Terms are a ``rate`` in samples a second, ``expires`` such as ``90d`` or a date, and ``networks`` such
        as ``["10.0.0.0/8"]``; those left out are without bound.
        """
        keys.check_name(name)
        granted, secret = keys.make_terms(budget=budget, **terms), keys.make_secret()
        with self.writing() as writing:
            present = writing.state.find(name)
            if present is not None and present.revoked is None:
                raise InputError(f"the key {brief(name)} exists already: revoke it, or choose another name")
            number = len(writing.state.keys) + 1
            kept = keys.keep_secret(secret)
            writing.append(state.KeyAdded(key=number, name=name, terms=granted, secret=kept))
        return secret

    def set_key(self, name: str, **changes: Any) -> keys.Terms:
        """Change terms of a key, written as for `add_key`, from the next request on; return all its terms."""
        with self.writing() as writing:
            key = _find_active(writing.state, name)
            terms = keys.make_terms(key.terms, **changes)
            writing.append(state.KeySet(key=key.number, terms=terms))
        return terms

    def renew_key(self, name: str, grace: timedelta = keys.GRACE) -> str:
        """Give a key a new secret and return it; the last secret ends soon, earlier ones at once."""
        secret = keys.make_secret()
        with self.writing() as writing:
            key = _find_active(writing.state, name)
            until = keys.as_text(datetime.fromisoformat(writing.time) + grace)
            writing.append(state.KeyRenewed(key=key.number, secret=keys.keep_secret(secret), until=until))
        return secret

    def revoke_key(self, name: str) -> None:
        """End a key from the next request on; its name may be used again."""
        with self.writing() as writing:
            writing.append(state.KeyRevoked(key=_find_active(writing.state, name).number))

    def forget_key(self, name: str) -> int:
        """Delete answers and means of the last revoked key with a name; return the number of answers."""
        with self.writing() as writing:
            named = [key for key in writing.state.keys.values() if key.name == name and key.revoked]
            if not named or named[-1].forgotten:
                raise InputError(f"there are no answers of a revoked key {brief(name)}: revoke it first")
            number = named[-1].number
            writing.append(state.Forgotten(key=number))
            writing.connection.execute(log.means.delete().filter_by(key=number))
            count = writing.connection.execute(log.answers.delete().filter_by(key=number)).rowcount
        self._database.erase_deleted()
        return count

    def list_keys(self) -> list[keys.Key]:
        """Return all keys, revoked ones too, in the order in which they were made."""
        return list(self.state().keys.values())

    def authenticate(self, secret: str, address: str | None = None) -> keys.Key:
        """Return the key of a secret, if it may ask; an ``address`` of ``None`` is not checked."""
        shown, present = keys.keep_secret(secret).hash, self.state()
        key = present.owner(shown)
        if key is None:
            raise Refusal("unknown-key", "This service does not know the key; check it with its owner.")
        key.check(self._now(present), shown)
        if address is not None and not key.terms.admits(address):
            raise Refusal("not-for-you", "The key is bound to another network than yours.", key=key.name)
        return key

    def seconds_to_wait(self, key: keys.Key, pending: int) -> int | None:
        """Return the whole seconds until a key may ask again; ``None`` if it may now.

        A request of any size is accepted as soon as the rate allows one sample. So a key exceeds its rate by
        at most one request, and by the requests that other replicas are working on. ``pending`` counts the
        key's samples that are in work in this process.
        """
        rate = key.terms.rate
        if rate is None:
            return None
        saved = max(BURST, 1 / rate)
        ahead = key.busy_until - datetime.fromisoformat(self._now(self._state)).timestamp()
        wait = max(0.0, ahead) + (pending + 1) / rate - saved
        return max(1, math.ceil(wait)) if wait > 1e-6 else None

    def find_answers(self, key: keys.Key, model: str, contents: Sequence[bytes]) -> Answers:
        """Return the answers that a key has already received; they are free."""
        with self.reading() as (connection, present):
            key = present.keys[key.number]
            key.check(self._now(present))
            found = self._find(connection, present, key, model, contents)
        key.check_budget(len(set(contents)) - len(found.labels))
        return found

    def charge(
        self,
        key: keys.Key,
        model: str,
        contents: Sequence[bytes],
        computed: Mapping[bytes, int],
        *,
        request: str,
        calibration: str | None = None,
        privacy: str | None = None,
    ) -> Answers:
        """Charge for the answers that are new, and return all answers. If this raises, nothing is charged.

        ``computed`` holds the model's label of each new content, under the calibration with this digest. If
        another request has meanwhile asked about a content, that request's label counts.
        """
        with self.writing() as writing:
            key = writing.state.keys[key.number]
            key.check(writing.time)
            if calibration != key.use(model).calibration_digest:
                raise Refusal("busy", "The key was calibrated meanwhile; try again.", retry_after=1)
            known = self._find(writing.connection, writing.state, key, model, contents)
            new = {content: computed[content] for content in contents if content not in known.labels}
            key.check_budget(len(new))
            if not new:
                return known
            entry = writing.append(
                state.Answered(
                    key=key.number,
                    model=model,
                    charged=len(new),
                    digest=answers_digest(new.items()),
                    request=request,
                    calibration=calibration,
                    privacy=privacy,
                )
            )
            shared = {"key": key.number, "model": model, "entry": entry.number}
            rows = [{"content": content, "label": label} | shared for content, label in new.items()]
            writing.connection.execute(log.answers.insert(), rows)
            balance = writing.state.keys[key.number].balance
        hashes = tuple(sorted({*known.entries, entry.hash}))
        return Answers(known.labels | new, hashes, writing.state.era, entry.time, balance)

    def calibrate(self, key: keys.Key, model: str, told: Calibration, mean: FloatArray) -> Calibration:
        """Fix, for good, the ``(width,)`` mean that is subtracted from the samples of a key for one model.

        If a request with the same samples came first, its calibration is returned.
        """
        with self.writing() as writing:
            key = writing.state.keys[key.number]
            key.check(writing.time)
            there = key.use(model).find_calibration(told.digest)
            if there is None:
                words = mean.astype(_MEAN_TYPE).tobytes()
                row: dict[str, Any] = {"key": key.number, "model": model}
                writing.append(state.Calibrated(**row, calibration=told, mean=digest_of(words)))
                writing.connection.execute(log.means.insert(), row | {"mean": words})
        return there or told

    def mean(self, key: keys.Key, model: str) -> FloatArray | None:
        """Return the ``(width,)`` mean to subtract from a key's samples; ``None`` for the model's own."""
        with self.reading() as (connection, present):
            digest = present.keys[key.number].use(model).mean
            if digest is None:
                return None
            rows = list(log.select_in(connection, log.means.c.key, [key.number], model=model))
            if [digest_of(row.mean) for row in rows] != [digest]:
                raise self._damaged(f"the mean of the key {key.name!r} was changed")
            return np.frombuffer(rows[0].mean, _MEAN_TYPE)

    def _find(
        self, connection: Connection, present: State, key: keys.Key, model: str, contents: Sequence[bytes]
    ) -> Answers:
        """Return answers given before, after comparing them with the entries that charged for them."""
        asked = log.select_in(connection, log.answers.c.content, set(contents), key=key.number, model=model)
        found = {bytes(row.content): row for row in asked}
        numbers = {row.entry for row in found.values() if row.entry >= present.first}
        entries = log.find_entries(connection, numbers | {number - 1 for number in numbers})
        given, named = log.answers_of(connection, numbers), {0: (key.created, "")}
        if present.archive is not None and any(row.entry < present.first for row in found.values()):
            named[0] = present.archive.time, present.archive.hash
        for number in numbers:
            entry, before = entries.get(number), entries.get(number - 1)
            if entry is None or before is None or not entry.follows(before.hash):
                raise self._damaged(f"entry {number} was changed, or is missing")
            body = state.parse_body(entry)
            if not isinstance(body, state.Answered) or body.digest != log.digest_rows(given[number]):
                raise self._damaged(f"the answers of entry {number} were changed")
            named[number] = entry.time, entry.hash
        labels = {content: row.label for content, row in found.items()}
        hashes = tuple(sorted(digest for _, digest in named.values() if digest))
        return Answers(labels, hashes, present.era, named[max(named)][0], key.balance)

    def _now(self, present: State) -> str:
        return max(keys.as_text(self._clock()), present.time)


def _find_active(present: State, name: str) -> keys.Key:
    key = present.find(name)
    if key is None:
        raise InputError(f"there is no key of the name {brief(name)}")
    if key.revoked is not None:
        raise InputError(f"the key {brief(name)} was revoked already, at {key.revoked}")
    return key
