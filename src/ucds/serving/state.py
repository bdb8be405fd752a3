"""The state of a ledger, as its log gives it, and the rules that no entry may break.

Every process builds the state from the log, entry by entry, and so does `ucds ledger verify`: an entry that
one of them refuses, all refuse. The first entry names the version of the rules for its log.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, ValidationError

from ucds.labels import wire
from ucds.math.privacy import Guarantee
from ucds.serving.keys import Key, ModelUse, Name, Secret, Terms, as_text
from ucds.serving.log import GENESIS, Entry


class RuleBroken(Exception):  # noqa: N818  (what it means depends on who asks)
    """An entry cannot follow the log before it; the message is one sentence."""


class Statement(wire.Signed):
    """The provider's signed statement about its log at one moment: a checkpoint."""

    format: Literal["ucds-snapshot/1"] = "ucds-snapshot/1"
    number: wire.Positive  # of entries
    hash: wire.Digest  # of the last entry; it covers all entries
    era: wire.Count
    time: wire.Time
    state: wire.Digest  # of the state after the last entry


class Loss(wire.Message):
    """A loss: the entry that accepts it, the era that begins there, and era and time of the entry before."""

    entry: wire.Positive
    era: wire.Positive
    after: wire.Count
    since: wire.Time


class Archive(wire.Message):
    """The entry (by hash and time) that archived all entries before ``first``, the first that stays."""

    hash: wire.Digest
    time: wire.Time
    first: wire.Positive


class State(wire.Message):
    """The state after an entry of a log; number, hash and time of this entry come first."""

    number: wire.Count = 0
    hash: wire.Digest = GENESIS
    era: wire.Count = 0  # clocks can be wrong: in its order the log has eras first, then times
    time: wire.Time = "0001-01-01T00:00:00.000+00:00"
    keys: dict[int, Key] = Field(default_factory=dict)
    losses: tuple[Loss, ...] = ()
    archive: Archive | None = None  # the last one
    statement: Statement | None = None  # the last one in the log

    @property
    def unsigned(self) -> int:
        """Number of entries since the last snapshot."""
        return self.number if self.statement is None else self.number - self.statement.number - 1

    @property
    def first(self) -> int:
        """Number of the first entry that is not archived."""
        return 1 if self.archive is None else self.archive.first

    def digest(self) -> str:
        """Compute the SHA-256 of the state."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def excuses(self, told: Statement | wire.Receipt) -> bool:
        """Return whether entries that a signed statement names are missing because of an accepted loss."""
        number = told.number if isinstance(told, Statement) else math.inf
        return any(
            (loss.after, loss.since) <= (told.era, told.time) and told.era < loss.era and loss.entry <= number
            for loss in self.losses
        )

    def find(self, name: str) -> Key | None:
        """Return the active key with a name, or else the last revoked one; ``None`` if there is neither."""
        named = [key for key in self.keys.values() if key.name == name]
        return next((key for key in named if key.revoked is None), named[-1] if named else None)

    def owner(self, secret: str) -> Key | None:
        """Return the key to which the secret with a hash belongs; ``None`` if there is none."""
        return next((k for k in self.keys.values() if any(one.hash == secret for one in k.secrets)), None)

    def after(self, entry: Entry, signers: Collection[str] = ()) -> State:
        """Return the state after an entry; RuleBroken says why the entry cannot follow.

        A snapshot must be signed with one of the given public keys, or with any key if none is given.
        """
        if entry.number != self.number + 1:
            raise RuleBroken(f"entry {self.number + 1} is missing")
        with _named(entry):
            _require(entry.follows(self.hash), "was changed, or one before it")
            _require(_is_time(entry.time), "has a time in another form than ucds writes")
            body = parse_body(entry)
            in_order = entry.time >= self.time or isinstance(body, ClockAccepted)
            _require(in_order, f"is dated before entry {self.number}")
            _require(isinstance(body, Begun) == (self.number == 0), "is out of order")
            told: dict[str, Any] = {"number": entry.number, "hash": entry.hash, "time": entry.time}
            if isinstance(body, KeyEntry):
                return self.model_copy(update=told | _key_changes(self, entry, body))
            told |= _changes(self, entry, body)
            if isinstance(body, Snapshot):
                _check_snapshot(body, entry, signers)
            return self.model_copy(update=told)


class Body(wire.Message):
    """The content of an entry.

    The salt hides an entry behind its hash. Without a salt, a client could guess unknown parts of an entry
    that its receipt names, such as the number of entries before it, and check the guess by the hash.
    """

    salt: str = Field(default_factory=lambda: secrets.token_hex(16))


class Begun(Body):
    """The first entry: the version of the rules."""

    rules: Literal[1] = 1


class LossAccepted(Body):
    """The provider's decision to go on without entries that a checkpoint names."""

    lost: Statement


class ClockAccepted(Body):
    """The provider's confirmation that the clock is right although the last entry's time is far from it."""


class Archived(Body):
    """The archiving of all entries before ``first``, the first that stays."""

    first: wire.Positive


class Snapshot(Body):
    """The state before this entry, signed."""

    statement: Statement
    state: State


class KeyAdded(Body):
    """A new key."""

    key: wire.Positive
    name: Name
    terms: Terms
    secret: Secret


class KeyEntry(Body):
    """A change of an existing key."""

    key: wire.Positive


class KeySet(KeyEntry):
    """New terms of a key."""

    terms: Terms


class KeyRenewed(KeyEntry):
    """A new secret of a key; the last secret ends at a given time, earlier ones at once."""

    secret: Secret
    until: wire.Time


class KeyRevoked(KeyEntry):
    """The end of a key."""


class Forgotten(KeyEntry):
    """The deletion of all answers of a revoked key."""


class Calibrated(KeyEntry):
    """The mean that a model subtracts from a key's samples, for good."""

    model: wire.ModelDigest
    calibration: wire.Calibration
    mean: wire.Digest


class Answered(KeyEntry):
    """A charge for samples whose labels a key received for the first time."""

    model: wire.ModelDigest
    charged: wire.Positive
    digest: wire.Digest  # of the answers; see `ucds.labels.wire.answers_digest`
    request: str
    calibration: wire.ModelDigest | None = None  # digest of the one from which the samples were seen
    privacy: Guarantee | None = None


_FORMS: dict[str, type[Body]] = {
    form.__name__: form for base in (Body, KeyEntry) for form in base.__subclasses__() if form is not KeyEntry
}


def parse_body(entry: Entry) -> Body:
    """Read the body of an entry."""
    try:
        return _FORMS[entry.kind].model_validate_json(entry.body)
    except (KeyError, ValidationError):
        raise RuleBroken("has a form that this version of ucds does not know") from None


def open_snapshot(entry: Entry, signers: Collection[str] = ()) -> State:
    """Return the state after a snapshot, without the entries before it; see :meth:`State.after`."""
    with _named(entry):
        body = parse_body(entry)
        if not isinstance(body, Snapshot):
            raise RuleBroken("begins the log, but is not a snapshot")
        _check_snapshot(body, entry, signers)
    told = {"number": entry.number, "hash": entry.hash, "time": entry.time, "statement": body.statement}
    return body.state.model_copy(update=told)


def _changes(state: State, entry: Entry, body: Body) -> dict[str, Any]:
    """Check the rules of an entry, and return the new values of the fields that it changes in the state."""
    match body:
        case LossAccepted(lost=lost):
            era = 1 + max(state.era, lost.era)  # what was lost may have had eras of its own
            loss = Loss(entry=entry.number, era=era, after=state.era, since=state.time)
            return {"era": era, "losses": (*state.losses, loss)}
        case ClockAccepted():
            keys = {number: key.at(entry.time) for number, key in state.keys.items()}
            return {"era": state.era + 1, "keys": keys}
        case Archived():
            last = 0 if state.statement is None else state.statement.number + 1
            _require(body.first == last > 0, "archives entries, but not up to the last snapshot")
            return {"archive": Archive(hash=entry.hash, time=entry.time, first=body.first)}
        case Snapshot():
            _require(body.state == state, "holds a state that the log does not have")
            return {"statement": body.statement}
        case KeyAdded(key=number, name=name, secret=secret):
            present = state.find(name)
            is_free = present is None or present.revoked is not None
            is_new = number == len(state.keys) + 1 and state.owner(secret.hash) is None
            _require(is_free and is_new, f"adds a key {name!r}, which exists already")
            key = Key(number=number, name=name, terms=body.terms, created=entry.time, secrets=(secret,))
            return {"keys": state.keys | {number: key}}
    return {}


def _key_changes(state: State, entry: Entry, body: KeyEntry) -> dict[str, Any]:
    """Check the rules of an entry on a key, and return the keys as they are after it."""
    key = state.keys.get(body.key)
    if key is None:
        raise RuleBroken(f"names a key {body.key}, which does not exist")
    was_revoked = f"uses the key {key.name!r} after it was revoked"
    _require(key.revoked is None or isinstance(body, Forgotten), was_revoked)
    if isinstance(body, Calibrated | Answered):
        _require(key.end(entry.time) is None, f"uses the key {key.name!r} after its end")
    changes: dict[str, Any] = {}
    match body:
        case KeySet():
            changes = {"terms": body.terms}
        case KeyRenewed():
            _require(state.owner(body.secret.hash) is None, "gives a secret twice")
            last = key.secrets[-1].model_copy(update={"until": body.until})
            changes = {"secrets": (last, body.secret)}
        case KeyRevoked():
            changes = {"revoked": entry.time}
        case Forgotten():
            _require(key.revoked is not None, f"forgets the key {key.name!r}, which is not revoked")
            models = {model: use.model_copy(update={"mean": None}) for model, use in key.models.items()}
            changes = {"forgotten": True, "models": models}
        case Calibrated():
            _require(body.model not in key.models, f"calibrates the key {key.name!r} again, or after answers")
            use = ModelUse(calibration=body.calibration, mean=body.mean)
            changes = {"models": key.models | {body.model: use}}
        case Answered():
            changes = _charge(key, entry, body)
    return {"keys": state.keys | {key.number: key.model_copy(update=changes)}}


def _charge(key: Key, entry: Entry, body: Answered) -> dict[str, Any]:
    used, budget, use = key.used + body.charged, key.terms.budget, key.use(body.model)
    over = f"charges {used:,} samples in all to the key {key.name!r} of a budget of {budget:,}"
    _require(used <= budget, over)
    _require(use.calibration_digest == body.calibration, "names a calibration that its key does not have")
    busy = 0.0
    if key.terms.rate is not None:
        time = datetime.fromisoformat(entry.time).timestamp()
        busy = max(key.busy_until, time) + body.charged / key.terms.rate
    use = use.model_copy(update={"answers": use.answers + body.charged})
    told = {"used": used, "last_used": entry.time, "busy_until": busy}
    return told | {"models": key.models | {body.model: use}}


def _check_snapshot(body: Snapshot, entry: Entry, signers: Collection[str]) -> None:
    """Make sure that a snapshot is a signed statement about the state that it follows."""
    told, state = body.statement, body.state
    _require(wire.is_authentic(told) and told.state == state.digest(), "is a snapshot with a wrong signature")
    _require(
        not signers or told.signer in signers,
        f"is a snapshot signed with the key {told.signer[:16]}..; if that was your key, name it as `signer`",
    )
    placed = (told.number, told.hash) == (state.number, state.hash) and entry.number == state.number + 1
    _require(placed and entry.follows(told.hash), "is a snapshot of another log")


@contextmanager
def _named(entry: Entry) -> Iterator[None]:
    """Put the number of an entry into its error."""
    try:
        yield
    except RuleBroken as error:
        raise RuleBroken(f"entry {entry.number} {error}") from None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuleBroken(otherwise)


def _is_time(text: str) -> bool:
    try:
        return as_text(datetime.fromisoformat(text)) == text
    except ValueError:
        return False
