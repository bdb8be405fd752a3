"""The ledger of a label service: who may ask, how much, and what was answered, exact under many writers.

The labels are computed first. Then one transaction reads the log to its end, checks the budget again, keeps
the answers and appends to the log; only when it is on disk does the client get them. After a crash before
that moment nothing is charged; after a crash later, the answers are kept and free when asked again.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from ucds.errors import InputError
from ucds.labels.receipts import answers_digest
from ucds.labels.wire import Budget, Calibration
from ucds.serving import log
from ucds.serving.keys import (
    Key,
    KeyRefused,
    ModelUse,
    Terms,
    as_text,
    check_name,
    keep_secret,
    make_secret,
    make_terms,
)
from ucds.serving.replay import Replay
from ucds.serving.state import (
    Answered,
    Calibrated,
    KeyAdded,
    KeyRenewed,
    KeyRevoked,
    KeySet,
    SignerSet,
    State,
    parse_body,
)

BURST = 10.0
"""Seconds of its rate that a key may save up."""

GRACE = timedelta(hours=24)
_MEAN_TYPE = "<f4"
Mean = npt.NDArray[np.float32]


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
        self.budget, self.new = budget, new


class MeanChanged(Exception):  # noqa: N818
    """The key was calibrated while its samples were labelled from the model's own mean."""


class NotCalibrated(Exception):  # noqa: N818
    """A key that cannot be calibrated any more: it has another calibration, or answers of the model.

    Args:
        reason: one sentence that says which.
    """


@dataclass(frozen=True)
class Answers:
    """Answers that the ledger holds for a key.

    Attributes:
        labels: label of each content asked about, as far as it is known.
        entries: hashes of the log's entries that charged for them, sorted.
        time: time of the last of these entries, ISO 8601 in UTC.
        budget: budget of the key.
    """

    labels: dict[bytes, int]
    entries: tuple[str, ...]
    time: str
    budget: Budget


@dataclass(frozen=True, eq=False)
class KeyMean:
    """The mean from which a model sees the samples of a key.

    Attributes:
        told: number and digest of the samples, which the client is told.
        mean: ``(width,)`` mean of the unit features of the samples.
    """

    told: Calibration
    mean: Mean


class Ledger(Replay):
    """The ledger of one service or of several replicas; :class:`Replay` explains arguments and errors."""

    def set_signer(self, public: str) -> None:
        """Record the public key that signs receipts and snapshots, if none is recorded yet.

        Args:
            public: public key in hexadecimal digits.

        Raises:
            InputError: another key signs for this ledger.
        """
        with self.writing() as writing:
            present = writing.state.signer
            if present is None:
                writing.append(SignerSet(signer=public))
            elif present != public:
                raise InputError(
                    f"the receipts of this ledger are signed with the key {present[:16]}.., not with "
                    f"{public[:16]}..: give its file as --signing-key, or, if it is lost, record a new one "
                    "with `ucds ledger accept-loss --signing-key`"
                )

    def add_key(
        self,
        name: str,
        budget: int,
        rate: float | None = None,
        *,
        expires: str = "never",
        networks: Sequence[str] = (),
    ) -> str:
        """Make a key and return its secret, this once; the ledger keeps its hash alone.

        Args:
            name: name of its holder, up to 64 letters, digits and ``. _ @ -``.
            budget: distinct samples that may be labelled.
            rate: samples a second; ``None`` without bound.
            expires: end of the key, as `ucds.serving.keys.parse_end` reads it.
            networks: networks from which the key may ask, such as ``10.0.0.0/8``; any if empty.

        Raises:
            InputError: the name is taken or unusable, a number is out of range, or a network is none.
        """
        check_name(name)
        terms, secret = make_terms(budget, rate, expires, networks), make_secret()
        with self.writing() as writing:
            present = writing.state.find(name)
            if present is not None and present.revoked is None:
                raise InputError(f"there is a key of the name {name!r} already: revoke it, or choose another")
            number = len(writing.state.keys) + 1
            writing.append(KeyAdded(key=number, name=name, terms=terms, secret=keep_secret(secret)))
        return secret

    def set_key(self, name: str, **changes: Any) -> Terms:
        """Change the terms of a key from the next request on, and return the new ones.

        Args:
            name: name of the key.
            **changes: new terms: ``budget``, ``rate``, ``expires`` and ``networks``, as `add_key` takes them.

        Raises:
            InputError: there is no key of that name, or it is revoked; or a term cannot be.
        """
        with self.writing() as writing:
            key = _find_active(writing.state, name)
            terms = make_terms(**(_words(key.terms) | changes))
            writing.append(KeySet(key=key.number, terms=terms))
        return terms

    def renew_key(self, name: str, grace: timedelta = GRACE) -> str:
        """Give a key a new secret and return it; its last one stays valid for some time.

        Args:
            name: name of the key.
            grace: time for which the last secret stays valid. A secret that was replaced before ends at once.

        Raises:
            InputError: there is no key of that name, or it is revoked.
        """
        secret = make_secret()
        with self.writing() as writing:
            key = _find_active(writing.state, name)
            until = as_text(datetime.fromisoformat(writing.time) + max(grace, timedelta(0)))
            writing.append(KeyRenewed(key=key.number, secret=keep_secret(secret), until=until))
        return secret

    def revoke_key(self, name: str) -> None:
        """Make a key worthless from the next request on; its name may be used again.

        Raises:
            InputError: there is no key of that name, or it is revoked already.
        """
        with self.writing() as writing:
            writing.append(KeyRevoked(key=_find_active(writing.state, name).number))

    def list_keys(self) -> list[Key]:
        """Return all keys, revoked ones too, in the order in which they were made."""
        with self.reading() as (_, present):
            return list(present.keys.values())

    def authenticate(self, secret: str, address: str | None = None) -> Key:
        """Return the key whose secret a client shows.

        Args:
            secret: secret as the client shows it.
            address: address of the client; ``None`` to leave the networks of the key out.

        Raises:
            KeyRefused: there is no such key, or it may not ask.
        """
        shown = keep_secret(secret).hash
        with self.reading() as (_, present):
            if shown not in present.owners:
                raise KeyRefused("unknown-key")
            key = present.keys[present.owners[shown]]
            key.check(max(as_text(self._clock()), present.time), address, shown)
        return key

    def seconds_to_wait(self, key: Key, pending: int) -> int | None:
        """Return the whole seconds until a key may ask again; ``None`` if it may now.

        A request is let in as soon as there is room for one sample, whatever it holds. So a key exceeds its
        rate by one request at most, and by what other replicas have in work at that moment.

        Args:
            key: key that asks, as :meth:`authenticate` returned it.
            pending: samples of the key that are in work here, or were repeated here for free.
        """
        rate = key.terms.rate
        if rate is None:
            return None
        saved = max(BURST, 1 / rate)
        now = max(as_text(self._clock()), self._state.time)
        ahead = key.busy_until - datetime.fromisoformat(now).timestamp()
        wait = max(0.0, ahead) + (pending + 1) / rate - saved
        return max(1, math.ceil(wait)) if wait > 1e-6 else None

    def find_answers(self, key: Key, model: str, contents: Sequence[bytes]) -> Answers:
        """Return the answers that a key was given before; they are free.

        Raises:
            OverBudget: the other samples are more than the budget has left.
            KeyRefused: the key has ended.
        """
        with self.reading() as (connection, present):
            key = present.keys[key.number]
            key.check(max(as_text(self._clock()), present.time))
            found = self._find(connection, present, key, model, contents)
        _check_budget(key, len(set(contents)) - len(found.labels))
        return found

    def charge(
        self,
        key: Key,
        model: str,
        contents: Sequence[bytes],
        computed: Mapping[bytes, int],
        *,
        request: str,
        calibration: str | None = None,
        privacy: str | None = None,
    ) -> Answers:
        """Charge for the answers that are new, and return all. Whatever is raised, nothing is charged.

        Args:
            key: key to charge.
            model: digest of the model that answered.
            contents: content keys of the request's usable samples.
            computed: label of each content that was not known before.
            request: id of the request, for the log.
            calibration: digest of the calibration with which ``computed`` was labelled; ``None`` without one.
            privacy: guarantee that the model carries; ``None`` without one.

        Returns:
            The answers. A content that another request asked for meanwhile has the label which that request
            got.

        Raises:
            OverBudget: the new samples are more than the budget has left.
            KeyRefused: the key was revoked meanwhile, or its time is over.
            MeanChanged: the key was calibrated meanwhile.
        """
        with self.writing() as writing:
            key = writing.state.keys[key.number]
            key.check(writing.time)
            if calibration != _calibrated(key, model):
                raise MeanChanged
            known = self._find(writing.connection, writing.state, key, model, contents)
            new = {content: computed[content] for content in contents if content not in known.labels}
            _check_budget(key, len(new))
            if not new:
                return known
            entry = writing.append(
                Answered(
                    key=key.number,
                    model=model,
                    charged=len(new),
                    digest=answers_digest(new.items()),
                    request=request,
                    calibration=calibration,
                    privacy=privacy,
                )
            )
            log.add_answers(writing.connection, key.number, model, entry.number, new)
            charged = writing.state.keys[key.number].budget
        entries = tuple(sorted({*known.entries, entry.hash}))
        return Answers(known.labels | new, entries, entry.time, charged)

    def find_mean(self, key: Key, model: str) -> KeyMean | None:
        """Return the mean from which a model sees the samples of a key; ``None`` for the model's own."""
        with self.reading() as (_, present):
            return _mean(present.keys[key.number], model)

    def check_calibration(self, key: Key, model: str, digest: str) -> KeyMean | None:
        """Return the calibration of a key if it is of the same samples; ``None`` if it can have this one.

        Args:
            key: key to calibrate.
            model: digest of the model.
            digest: digest of the contents of the samples, see `ucds.labels.calibration.digest_of_contents`.

        Raises:
            NotCalibrated: the key has another calibration, or labels of the model.
        """
        with self.reading() as (_, present):
            return _check_calibration(present.keys[key.number], model, digest)

    def calibrate(self, key: Key, model: str, mean: KeyMean) -> KeyMean:
        """Fix, for good, the mean from which a model sees the samples of a key.

        Returns:
            The calibration; that of another request with the same samples, if that one came first.

        Raises:
            NotCalibrated: the key has another calibration, or labels of the model.
            KeyRefused: the key was revoked meanwhile, or its time is over.
        """
        with self.writing() as writing:
            key = writing.state.keys[key.number]
            key.check(writing.time)
            there = _check_calibration(key, model, mean.told.digest)
            if there is None:
                words = base64.b64encode(mean.mean.astype(_MEAN_TYPE).tobytes()).decode()
                told = {"key": key.number, "model": model, "calibration": mean.told, "mean": words}
                writing.append(Calibrated.model_validate(told))
        return there or mean

    def _find(
        self, connection: Connection, present: State, key: Key, model: str, contents: Sequence[bytes]
    ) -> Answers:
        """Return answers that were given, once they agree with the entries that charged for them."""
        found = log.find_answers(connection, key.number, model, contents)
        numbers = {entry for _, entry in found.values()}
        archive, named = present.archive, set[tuple[str, str]]()
        kept = {number for number in numbers if archive is None or number >= archive.first}
        if archive is not None and kept != numbers:
            named.add((archive.time, archive.hash))
        entries = log.find_entries(connection, kept | {number - 1 for number in kept})
        rows = log.answers_of(connection, kept)
        for number in kept:
            entry, before = entries.get(number), entries.get(number - 1)
            if entry is None or before is None or not entry.follows(before.hash):
                raise self._damaged(f"entry {number} was changed, or is missing")
            body = parse_body(entry)
            given = answers_digest((bytes(row.content), row.label) for row in rows[number])
            if not isinstance(body, Answered) or body.digest != given:
                raise self._damaged(f"the answers of entry {number} were changed")
            named.add((entry.time, entry.hash))
        labels = {content: label for content, (label, _) in found.items()}
        hashes = tuple(sorted(digest for _, digest in named))
        return Answers(labels, hashes, max(named, default=(key.created, ""))[0], key.budget)


def _find_active(present: State, name: str) -> Key:
    key = present.find(name)
    if key is None:
        raise InputError(f"there is no key of the name {name!r}")
    if key.revoked is not None:
        raise InputError(f"the key {name!r} was revoked already, at {key.revoked}")
    return key


def _words(terms: Terms) -> dict[str, Any]:
    """Return terms as they are given to `make_terms`."""
    return dict(terms) | {"expires": terms.expires or "never"}


def _check_budget(key: Key, new: int) -> None:
    if new > 0 and key.used + new > key.terms.budget:
        raise OverBudget(key.budget, new)


def _calibrated(key: Key, model: str) -> str | None:
    told = key.models.get(model, ModelUse()).calibration
    return None if told is None else told.digest


def _mean(key: Key, model: str) -> KeyMean | None:
    use = key.models.get(model, ModelUse())
    if use.calibration is None or use.mean is None:
        return None
    return KeyMean(use.calibration, np.frombuffer(base64.b64decode(use.mean), _MEAN_TYPE).astype(np.float32))


def _check_calibration(key: Key, model: str, digest: str) -> KeyMean | None:
    use = key.models.get(model, ModelUse())
    if use.calibration is not None and use.calibration.digest != digest:
        samples = use.calibration.samples
        raise NotCalibrated(f"The key was calibrated with {samples:,} other samples, and stays so.")
    if use.calibration is None and use.answers:
        raise NotCalibrated("The key has labels of this model already; ask the provider for another key.")
    return _mean(key, model)
