"""The state of a ledger: what its log means, and the rules that no entry may break.

Every process makes the state from the log, entry by entry, and so does `ucds ledger verify`: what one of them
refuses, all refuse. The first entry names the version of the rules by which its log is judged.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from ucds.labels.receipts import is_authentic
from ucds.labels.wire import (
    Calibration,
    Count,
    Digest,
    Guarantee,
    Message,
    ModelDigest,
    Positive,
    PublicKey,
    Signed,
    Time,
)
from ucds.serving.keys import Key, ModelUse, Name, Secret, Terms, as_text
from ucds.serving.log import GENESIS, Entry, Head


class RuleBroken(Exception):  # noqa: N818  (what it means depends on who asks)
    """An entry that cannot follow the log before it; the message is one sentence."""


class Begun(Message):
    """The first entry: the version of the rules."""

    rules: Literal[1] = 1


class SignerSet(Message):
    """The public key that signs receipts and snapshots."""

    signer: PublicKey


class KeyAdded(Message):
    """A new key."""

    key: Positive
    name: Name
    terms: Terms
    secret: Secret


class KeySet(Message):
    """New terms of a key."""

    key: Positive
    terms: Terms


class KeyRenewed(Message):
    """A new secret of a key; the last one ends at a time, and any before it at once."""

    key: Positive
    secret: Secret
    until: Time


class KeyRevoked(Message):
    """The end of a key."""

    key: Positive


class Calibrated(Message):
    """The mean from which a model sees the samples of a key, for good."""

    key: Positive
    model: ModelDigest
    calibration: Calibration
    mean: str


class Answered(Message):
    """A charge for samples that a key was answered about for the first time.

    Attributes:
        key: number of the key.
        model: digest of the model.
        charged: number of the samples.
        digest: digest of these answers; see `ucds.labels.receipts.answers_digest`.
        request: id of the request.
        calibration: digest of the calibration from which the samples were seen.
        privacy: guarantee that the model carries.
    """

    key: Positive
    model: ModelDigest
    charged: Positive
    digest: Digest
    request: str
    calibration: ModelDigest | None = None
    privacy: Guarantee | None = None


class Forgotten(Message):
    """The deletion of all answers of a revoked key."""

    key: Positive


class LossAccepted(Message):
    """A decision of the provider: to go on without what a checkpoint names, or with another signer."""

    lost: Statement | None = None
    signer: PublicKey | None = None


class Archived(Message):
    """The move of all entries before the ``first`` that stays into a file."""

    first: Positive


class Statement(Signed):
    """The provider's signed word on its log at one moment: a checkpoint.

    Attributes:
        format: kind of the statement.
        number: number of entries.
        hash: hash of the last entry, which covers all entries.
        time: time of the statement, ISO 8601 in UTC.
        state: SHA-256 of the state after the last entry.
    """

    format: Literal["ucds-snapshot/1"] = "ucds-snapshot/1"
    number: Count
    hash: Digest
    time: Time
    state: Digest


class Snapshot(Message):
    """The state before this entry, signed."""

    statement: Statement
    state: State


Body: TypeAlias = (
    Begun
    | SignerSet
    | KeyAdded
    | KeySet
    | KeyRenewed
    | KeyRevoked
    | Calibrated
    | Answered
    | Forgotten
    | LossAccepted
    | Archived
    | Snapshot
)
_FORMS: dict[str, type[Body]] = {form.__name__: form for form in get_args(Body)}


class Loss(Message):
    """A loss: the entry that accepted it, its time, and the time of the entry before."""

    entry: Positive
    since: Time
    time: Time


class Archive(Message):
    """The entry, by hash and time, that moved all entries before the ``first`` that stays into a file."""

    hash: Digest
    time: Time
    first: Positive


class State(Message):
    """What a log says, from its first entry to one of them.

    Attributes:
        number: number of entries.
        hash: hash of the last one.
        time: time of the last one.
        rules: version of the rules; 0 before the first entry.
        signers: public keys that have signed, the present one last.
        keys: keys by number.
        owners: number of the key that each secret belongs to, by the secret's hash.
        losses: losses that were accepted.
        archive: last archive; ``None`` before the first.
        statement: last signed statement in the log; ``None`` before the first.
    """

    number: Count = 0
    hash: Digest = GENESIS
    time: Time = "0001-01-01T00:00:00.000+00:00"
    rules: Count = 0
    signers: tuple[PublicKey, ...] = ()
    keys: dict[int, Key] = Field(default_factory=dict)
    owners: dict[Digest, int] = Field(default_factory=dict)
    losses: tuple[Loss, ...] = ()
    archive: Archive | None = None
    statement: Statement | None = None

    @property
    def head(self) -> Head:
        """End of the log."""
        return Head(self.number, self.hash)

    @property
    def signer(self) -> str | None:
        """Public key that signs now; ``None`` before the first."""
        return self.signers[-1] if self.signers else None

    @property
    def unsigned(self) -> int:
        """Number of entries since the last snapshot."""
        return self.number if self.statement is None else self.number - self.statement.number - 1

    def digest(self) -> str:
        """Compute the SHA-256 of the state."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def excuses(self, time: str, number: int | None = None) -> bool:
        """Return whether an entry that is not there, and that was signed at a time, is an accepted loss."""
        since = [loss for loss in self.losses if loss.since <= time <= loss.time]
        return any(number is None or number >= loss.entry for loss in since)

    def find(self, name: str) -> Key | None:
        """Return the key of a name that is not revoked, or else the last revoked one, or ``None``."""
        named = [key for key in self.keys.values() if key.name == name]
        return next((key for key in named if key.revoked is None), named[-1] if named else None)

    def after(self, entry: Entry) -> State:
        """Return the state after an entry.

        Raises:
            RuleBroken: the entry is not the next one, was changed, has a form that ucds does not write, or
                breaks a rule.
        """
        number = entry.number
        _require(number == self.number + 1, f"entry {self.number + 1} is missing")
        _require(entry.follows(self.hash), f"entry {number} was changed, or one before it")
        _require(_is_time(entry.time), f"entry {number} has no time that ucds writes")
        _require(entry.time >= self.time, f"entry {number} is dated before entry {self.number}")
        body = parse_body(entry)
        _require(isinstance(body, Begun) == (self.number == 0), f"entry {number} is out of order")
        told = {"number": number, "hash": entry.hash, "time": entry.time}
        return self.model_copy(update=told | self._changes(entry, body))

    def _changes(self, entry: Entry, body: Body) -> dict[str, Any]:
        """Return the new values of the fields that an entry changes."""
        number = entry.number
        match body:
            case Begun():
                return {"rules": body.rules}
            case SignerSet():
                _require(not self.signers, f"entry {number} replaces the signer without a loss")
                return {"signers": (body.signer,)}
            case KeyAdded():
                return self._add_key(entry, body)
            case KeyRenewed():
                return self._renew_key(entry, body)
            case LossAccepted():
                loss = Loss(entry=number, since=self.time, time=entry.time)
                signers = () if body.signer is None else (body.signer,)
                return {"losses": (*self.losses, loss), "signers": self.signers + signers}
            case Archived():
                last = 0 if self.statement is None else self.statement.number + 1
                _require(body.first == last > 0, f"entry {number} archives, but not up to the last snapshot")
                return {"archive": Archive(hash=entry.hash, time=entry.time, first=body.first)}
            case Snapshot():
                _require(body.state == self, f"entry {number} holds a state that the log does not have")
                check_snapshot(entry, body)
                return {"statement": body.statement}
        _require(body.key in self.keys, f"entry {number} names a key {body.key}, which there is not")
        return {"keys": self.keys | {body.key: _change_key(self.keys[body.key], entry, body)}}

    def _add_key(self, entry: Entry, body: KeyAdded) -> dict[str, Any]:
        present, secret = self.find(body.name), body.secret
        free = present is None or present.revoked is not None
        is_new = body.key == len(self.keys) + 1 and secret.hash not in self.owners
        _require(free and is_new, f"entry {entry.number} adds a key {body.name!r}, which is there already")
        key = Key(number=body.key, name=body.name, terms=body.terms, created=entry.time, secrets=(secret,))
        return {"keys": self.keys | {body.key: key}, "owners": self.owners | {secret.hash: body.key}}

    def _renew_key(self, entry: Entry, body: KeyRenewed) -> dict[str, Any]:
        key = self.keys.get(body.key)
        fits = key is not None and key.revoked is None and body.secret.hash not in self.owners
        _require(fits, f"entry {entry.number} gives a secret twice, or to a key that is not there")
        assert key is not None
        *ended, last = key.secrets
        kept = (last.model_copy(update={"until": body.until}), body.secret)
        gone = {secret.hash for secret in ended}
        owners = {one: number for one, number in self.owners.items() if one not in gone}
        changed = key.model_copy(update={"secrets": kept})
        return {"keys": self.keys | {body.key: changed}, "owners": owners | {body.secret.hash: body.key}}


def _change_key(key: Key, entry: Entry, body: KeySet | KeyRevoked | Calibrated | Answered | Forgotten) -> Key:
    """Return a key after an entry about it."""
    number, name = entry.number, repr(key.name)
    if isinstance(body, Forgotten):
        _require(key.revoked is not None, f"entry {number} forgets the key {name}, which is not revoked")
        models = {model: use.model_copy(update={"mean": None}) for model, use in key.models.items()}
        return key.model_copy(update={"forgotten": True, "models": models})
    _require(key.revoked is None, f"entry {number} uses the key {name} after it was revoked")
    if isinstance(body, KeySet):
        return key.model_copy(update={"terms": body.terms})
    if isinstance(body, KeyRevoked):
        return key.model_copy(update={"revoked": entry.time})
    _require(key.end(entry.time) is None, f"entry {number} uses the key {name} after its end")
    use = key.models.get(body.model, ModelUse())
    if isinstance(body, Answered):
        return _charge(key, use, entry, body)
    free = use.calibration is None and use.answers == 0
    _require(free, f"entry {number} calibrates the key {name} again, or after answers")
    use = ModelUse(calibration=body.calibration, mean=body.mean)
    return key.model_copy(update={"models": key.models | {body.model: use}})


def _charge(key: Key, use: ModelUse, entry: Entry, body: Answered) -> Key:
    """Return a key after a charge."""
    number, used, budget = entry.number, key.used + body.charged, key.terms.budget
    over = f"entry {number} charges {used:,} samples in all to the key {key.name!r} of a budget of {budget:,}"
    _require(used <= budget, over)
    calibrated = None if use.calibration is None else use.calibration.digest
    _require(calibrated == body.calibration, f"entry {number} names another calibration than its key has")
    busy = 0.0
    if key.terms.rate is not None:
        time = datetime.fromisoformat(entry.time).timestamp()
        busy = max(key.busy_until, time) + body.charged / key.terms.rate
    use = use.model_copy(update={"answers": use.answers + body.charged})
    told = {"used": used, "last_used": entry.time, "busy_until": busy}
    return key.model_copy(update=told | {"models": key.models | {body.model: use}})


def parse_body(entry: Entry) -> Body:
    """Read the body of an entry.

    Raises:
        RuleBroken: it has a form that ucds does not write.
    """
    try:
        return _FORMS[entry.kind].model_validate_json(entry.body)
    except (KeyError, ValidationError):
        form = f"entry {entry.number} has a form that this version of ucds does not write"
        raise RuleBroken(form) from None


def check_snapshot(entry: Entry, body: Snapshot) -> None:
    """Make sure that a snapshot is the signed word on its own state, and follows that state.

    Raises:
        RuleBroken: it is not.
    """
    told, state = body.statement, body.state
    signed = is_authentic(told) and told.signer == state.signer and told.state == state.digest()
    _require(signed, f"entry {entry.number} is a snapshot with a wrong signature")
    placed = (told.number, told.hash) == state.head and entry.number == state.number + 1
    _require(placed and entry.follows(told.hash), f"entry {entry.number} is a snapshot of another log")


def open_snapshot(entry: Entry) -> State:
    """Return the state after a snapshot, without the entries before it.

    Raises:
        RuleBroken: the entry is no snapshot, or is not what it claims to be.
    """
    body = parse_body(entry)
    if not isinstance(body, Snapshot):
        raise RuleBroken(f"the log begins with entry {entry.number}, which is no snapshot")
    check_snapshot(entry, body)
    told = {"number": entry.number, "hash": entry.hash, "time": entry.time, "statement": body.statement}
    return body.state.model_copy(update=told)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuleBroken(otherwise)


def _is_time(text: str) -> bool:
    try:
        return as_text(datetime.fromisoformat(text)) == text
    except ValueError:
        return False
