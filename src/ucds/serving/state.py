"""The state of a ledger: what its log means, and the rules that no entry may break.

Every process makes the state from the log, entry by entry, and so does `ucds ledger verify`: what one of them
refuses, all refuse. The first entry names the version of the rules by which its log is judged.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import abstractmethod
from datetime import datetime
from typing import Any, Literal

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
from ucds.serving.log import GENESIS, Entry


class RuleBroken(Exception):  # noqa: N818  (what it means depends on who asks)
    """An entry that cannot follow the log before it; the message is one sentence."""


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
    """What a log says, from its first entry to one of them, whose number, hash and time come first."""

    number: Count = 0
    hash: Digest = GENESIS
    time: Time = "0001-01-01T00:00:00.000+00:00"
    signers: tuple[PublicKey, ...] = ()  # the present one last
    keys: dict[int, Key] = Field(default_factory=dict)
    losses: tuple[Loss, ...] = ()
    archive: Archive | None = None  # the last one
    statement: Statement | None = None  # the last one in the log

    @property
    def signer(self) -> str | None:
        """Public key that signs now; ``None`` before the first."""
        return self.signers[-1] if self.signers else None

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

    def excuses(self, time: str, number: int | None = None) -> bool:
        """Return whether an entry that is not there, and that was signed at a time, is an accepted loss."""
        since = [loss for loss in self.losses if loss.since <= time <= loss.time]
        return any(number is None or number >= loss.entry for loss in since)

    def find(self, name: str) -> Key | None:
        """Return the key of a name that is not revoked, or else the last revoked one, or ``None``."""
        named = [key for key in self.keys.values() if key.name == name]
        return next((key for key in named if key.revoked is None), named[-1] if named else None)

    def owner(self, secret: str) -> Key | None:
        """Return the key to which a secret belongs, by the secret's hash, or ``None``."""
        return next((k for k in self.keys.values() if any(one.hash == secret for one in k.secrets)), None)

    def after(self, entry: Entry) -> State:
        """Return the state after an entry; RuleBroken says why it cannot follow."""
        if entry.number != self.number + 1:
            raise RuleBroken(f"entry {self.number + 1} is missing")
        try:
            _require(entry.follows(self.hash), "was changed, or one before it")
            _require(_is_time(entry.time), "has no time that ucds writes")
            _require(entry.time >= self.time, f"is dated before entry {self.number}")
            body = parse_body(entry)
            _require(isinstance(body, Begun) == (self.number == 0), "is out of order")
            changes = body._changes(self, entry)
        except RuleBroken as error:
            raise RuleBroken(f"entry {entry.number} {error}") from None
        told = {"number": entry.number, "hash": entry.hash, "time": entry.time}
        return self.model_copy(update=told | changes)


class Body(Message):
    """What an entry says. Each kind knows the rules of its own: a broken one raises RuleBroken.

    The salt hides an entry behind its hash. Without one, a client could guess what it does not know of an
    entry that its receipt names, such as the number of entries before it, and try the guess.
    """

    salt: str = Field(default_factory=lambda: secrets.token_hex(16))

    @abstractmethod
    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        """Return the new values of those fields of the state that the entry changes."""


class Begun(Body):
    """The first entry: the version of the rules."""

    rules: Literal[1] = 1

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        return {}


class SignerSet(Body):
    """The public key that signs receipts and snapshots."""

    signer: PublicKey

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        _require(not state.signers, "replaces the signer without a loss")
        return {"signers": (self.signer,)}


class LossAccepted(Body):
    """A decision of the provider: to go on without what a checkpoint names, or with another signer."""

    lost: Statement | None = None
    signer: PublicKey | None = None

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        loss = Loss(entry=entry.number, since=state.time, time=entry.time)
        signers = () if self.signer is None else (self.signer,)
        return {"losses": (*state.losses, loss), "signers": state.signers + signers}


class Archived(Body):
    """The move of all entries before the ``first`` that stays into a file."""

    first: Positive

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        last = 0 if state.statement is None else state.statement.number + 1
        _require(self.first == last > 0, "archives, but not up to the last snapshot")
        return {"archive": Archive(hash=entry.hash, time=entry.time, first=self.first)}


class Snapshot(Body):
    """The state before this entry, signed."""

    statement: Statement
    state: State

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        _require(self.state == state, "holds a state that the log does not have")
        self.check(entry)
        return {"statement": self.statement}

    def check(self, entry: Entry) -> None:
        """Make sure that this is the signed word on its own state, which the entry follows."""
        told, state = self.statement, self.state
        signed = is_authentic(told) and told.signer == state.signer and told.state == state.digest()
        _require(signed, "is a snapshot with a wrong signature")
        placed = (told.number, told.hash) == (state.number, state.hash) and entry.number == state.number + 1
        _require(placed and entry.follows(told.hash), "is a snapshot of another log")


class KeyAdded(Body):
    """A new key."""

    key: Positive
    name: Name
    terms: Terms
    secret: Secret

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        present, secret = state.find(self.name), self.secret
        is_free = present is None or present.revoked is not None
        is_new = self.key == len(state.keys) + 1 and state.owner(secret.hash) is None
        _require(is_free and is_new, f"adds a key {self.name!r}, which is there already")
        key = Key(number=self.key, name=self.name, terms=self.terms, created=entry.time, secrets=(secret,))
        return {"keys": state.keys | {self.key: key}}


class KeyEntry(Body):
    """What happens to a key that is there."""

    key: Positive

    def _changes(self, state: State, entry: Entry) -> dict[str, Any]:
        key = state.keys.get(self.key)
        if key is None:
            raise RuleBroken(f"names a key {self.key}, which there is not")
        if not isinstance(self, Forgotten):
            _require(key.revoked is None, f"uses the key {key.name!r} after it was revoked")
        fields = self._fields(key, state, entry)
        return {"keys": state.keys | {key.number: key.model_copy(update=fields)}}

    @abstractmethod
    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        """Return the new values of those fields of the key that the entry changes."""


class KeySet(KeyEntry):
    """New terms of a key."""

    terms: Terms

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        return {"terms": self.terms}


class KeyRenewed(KeyEntry):
    """A new secret of a key; the last one ends at a time, and any before it at once."""

    secret: Secret
    until: Time

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        _require(state.owner(self.secret.hash) is None, "gives a secret twice")
        last = key.secrets[-1].model_copy(update={"until": self.until})
        return {"secrets": (last, self.secret)}


class KeyRevoked(KeyEntry):
    """The end of a key."""

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        return {"revoked": entry.time}


class Forgotten(KeyEntry):
    """The deletion of all answers of a revoked key."""

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        _require(key.revoked is not None, f"forgets the key {key.name!r}, which is not revoked")
        models = {model: use.model_copy(update={"mean": None}) for model, use in key.models.items()}
        return {"forgotten": True, "models": models}


class Calibrated(KeyEntry):
    """The mean from which a model sees the samples of a key, for good."""

    model: ModelDigest
    calibration: Calibration
    mean: str

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        _require(key.end(entry.time) is None, f"uses the key {key.name!r} after its end")
        is_free = self.model not in key.models
        _require(is_free, f"calibrates the key {key.name!r} again, or after answers")
        use = ModelUse(calibration=self.calibration, mean=self.mean)
        _require(use.is_sound, "holds a mean that is no list of numbers")
        return {"models": key.models | {self.model: use}}


class Answered(KeyEntry):
    """A charge for samples that a key was answered about for the first time."""

    model: ModelDigest
    charged: Positive
    digest: Digest  # of the answers; see `ucds.labels.receipts.answers_digest`
    request: str
    calibration: ModelDigest | None = None  # digest of the one from which the samples were seen
    privacy: Guarantee | None = None

    def _fields(self, key: Key, state: State, entry: Entry) -> dict[str, Any]:
        _require(key.end(entry.time) is None, f"uses the key {key.name!r} after its end")
        used, budget, use = key.used + self.charged, key.terms.budget, key.use(self.model)
        over = f"charges {used:,} samples in all to the key {key.name!r} of a budget of {budget:,}"
        _require(used <= budget, over)
        calibrated = None if use.calibration is None else use.calibration.digest
        _require(calibrated == self.calibration, "names another calibration than its key has")
        busy = 0.0
        if key.terms.rate is not None:
            time = datetime.fromisoformat(entry.time).timestamp()
            busy = max(key.busy_until, time) + self.charged / key.terms.rate
        use = use.model_copy(update={"answers": use.answers + self.charged})
        told = {"used": used, "last_used": entry.time, "busy_until": busy}
        return told | {"models": key.models | {self.model: use}}


_FORMS: dict[str, type[Body]] = {
    form.__name__: form for base in (Body, KeyEntry) for form in base.__subclasses__() if form is not KeyEntry
}


def parse_body(entry: Entry) -> Body:
    """Read the body of an entry."""
    try:
        return _FORMS[entry.kind].model_validate_json(entry.body)
    except (KeyError, ValidationError):
        raise RuleBroken("has a form that this version of ucds does not write") from None


def open_snapshot(entry: Entry) -> State:
    """Return the state after a snapshot, without the entries before it."""
    try:
        body = parse_body(entry)
        if not isinstance(body, Snapshot):
            raise RuleBroken("begins the log, and is no snapshot")
        body.check(entry)
    except RuleBroken as error:
        raise RuleBroken(f"entry {entry.number} {error}") from None
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
