"""Keys of clients: the secret that a client shows, and what the log says of a key."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal

from pydantic import Field

from ucds.errors import InputError
from ucds.labels.wire import Budget, Calibration, Count, Digest, Message, ModelDigest, Positive, Time

_NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}

Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]
Refused = Literal["unknown-key", "revoked-key", "expired-key", "not-for-you"]
_DETAILS: dict[Refused, str] = {
    "unknown-key": "This service does not know the key; check it with its owner.",
    "revoked-key": "The key was revoked by its owner.",
    "expired-key": "The time of the key is over; ask the provider for another.",
    "not-for-you": "The key is bound to another network than the one that the request comes from.",
}


class KeyRefused(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A key that may not ask.

    Args:
        kind: reason.
        name: name of the key; ``None`` if there is no such key.

    Attributes:
        detail: one sentence for the client.
    """

    def __init__(self, kind: Refused, name: str | None = None) -> None:
        self.kind, self.name, self.detail = kind, name, _DETAILS[kind]
        super().__init__(self.detail)


class Terms(Message):
    """What the provider grants to a key.

    Attributes:
        budget: distinct samples that may be labelled.
        rate: samples a second; ``None`` without bound.
        expires: time when the key ends by itself; ``None`` if it does not.
        networks: networks from which the key may ask; any if empty.
    """

    budget: Count
    rate: Annotated[float, Field(ge=0.001, le=1e9)] | None = None
    expires: Time | None = None
    networks: tuple[str, ...] = ()


class Secret(Message):
    """What the ledger keeps of a secret: SHA-256, last characters, and its end once it is replaced."""

    hash: Digest
    tail: str
    until: Time | None = None


class ModelUse(Message):
    """What one model did for a key.

    Attributes:
        answers: distinct samples that it labelled.
        calibration: number and digest of the samples of the key's mean; ``None`` before a calibration.
        mean: mean of the calibration's samples, fp32 numbers, lowest byte first, in base64; ``None`` once the
            key is forgotten.
    """

    answers: Count = 0
    calibration: Calibration | None = None
    mean: str | None = None


class Key(Message):
    """What the log says of one key.

    Attributes:
        number: number of the key, from 1.
        name: name of its holder; a name may come again once its key is revoked.
        terms: budget, rate, end and networks.
        created: time when it was made, ISO 8601 in UTC.
        secrets: secrets that it may be shown by, the newest last.
        revoked: time when it was revoked; ``None`` while it is not.
        forgotten: whether its answers were deleted.
        used: distinct samples labelled so far.
        last_used: time of its last charge; ``None`` before the first.
        busy_until: second since 1970 at which its rate has paid for all charges; 0 without a rate.
        models: answers and calibration of each model, by the model's digest.
    """

    number: Positive
    name: Name
    terms: Terms
    created: Time
    secrets: tuple[Secret, ...]
    revoked: Time | None = None
    forgotten: bool = False
    used: Count = 0
    last_used: Time | None = None
    busy_until: Annotated[float, Field(ge=0)] = 0.0
    models: dict[ModelDigest, ModelUse] = Field(default_factory=dict)

    @property
    def budget(self) -> Budget:
        """Budget as the client is told."""
        limit = self.terms.budget
        return Budget(limit=limit, used=self.used, remaining=max(0, limit - self.used))

    def end(self, time: str) -> Literal["revoked-key", "expired-key"] | None:
        """Return why the key may not ask at a time, or ``None`` if it may."""
        if self.revoked is not None:
            return "revoked-key"
        return "expired-key" if self.terms.expires is not None and self.terms.expires <= time else None

    def check(self, time: str, address: str | None = None, secret: str | None = None) -> None:
        """Make sure that the key may ask.

        Args:
            time: present time.
            address: address that asks; ``None`` to leave the networks out.
            secret: hash of the secret that is shown; ``None`` to leave its end out.

        Raises:
            KeyRefused: the key or the secret has ended, or the address is in none of the key's networks.
        """
        kind: Refused | None = self.end(time)
        if any(one.hash == secret and one.until is not None and one.until <= time for one in self.secrets):
            kind = kind or "expired-key"
        if address is not None and self.terms.networks and not self._admits(address):
            kind = kind or "not-for-you"
        if kind is not None:
            raise KeyRefused(kind, self.name)

    def _admits(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)  # an IPv4 client of a socket for both
        return any((mapped or found) in ip_network(network) for network in self.terms.networks)


def make_secret() -> str:
    """Make a secret of 256 random bits, whose prefix tells a scanner of files what it is."""
    return f"ucds_{secrets.token_urlsafe(32)}"


def keep_secret(secret: str) -> Secret:
    """Return what the ledger keeps of a secret."""
    # The secret is 256 random bits, so a slow hash would protect nothing.
    return Secret(hash=hashlib.sha256(secret.encode()).hexdigest(), tail=secret[-4:])


def as_text(time: datetime) -> str:
    """Write a time as the ledger does, in UTC; such texts are in the order of time."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def parse_end(text: str) -> str | None:
    """Return the time that a user means by the end of a key, as the ledger writes it.

    Args:
        text: time from now such as ``90d``, ``12h`` or ``30m``; date or time in ISO 8601, in UTC if it names
            no zone; or ``never``.

    Raises:
        InputError: the text is none of these.
    """
    if text == "never":
        return None
    try:
        if found := re.fullmatch(r"([0-9]{1,6})([mhd])", text):
            return as_text(datetime.now(UTC) + timedelta(**{_UNITS[found[2]]: int(found[1])}))
        time = datetime.fromisoformat(text)
        return as_text(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        example = date.today() + timedelta(days=365)
        raise InputError(f"{text!r} is no end of a key: write 90d, 12h, 30m, {example} or never") from None


def check_name(name: str) -> None:
    """Make sure that a key can have a name.

    Raises:
        InputError: it cannot.
    """
    if not re.fullmatch(_NAME, name):
        raise InputError(f"{name!r} is no name of a key: use up to 64 letters, digits and . _ @ -")


def make_terms(
    budget: int, rate: float | None = None, expires: str = "never", networks: Sequence[str] = ()
) -> Terms:
    """Return the terms of a key; :class:`Terms` explains the arguments, and `parse_end` the end.

    Raises:
        InputError: a number is out of range, or a network is none.
    """
    if not 0 <= budget < 2**53:  # every reader of JSON reads these exactly
        raise InputError(f"a budget is a number of samples, not {budget}")
    if rate is not None and not 0.001 <= rate <= 1e9:
        raise InputError(f"a rate is a positive number of samples a second (0.001 to 1e9), not {rate}")
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise InputError(f"{network!r} is no network such as 10.0.0.0/8: {error}") from None
    return Terms(budget=budget, rate=rate, expires=parse_end(expires), networks=tuple(networks))
