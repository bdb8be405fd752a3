"""Keys of clients: the secret that a client shows, and the state of a key in the log."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, date, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, IPvAnyNetwork, ValidationError

from ucds.errors import InputError, brief, without_secrets
from ucds.labels.wire import Balance, Calibration, Count, Digest, Message, ModelDigest, Positive, Time
from ucds.serving.problems import Refusal

GRACE = timedelta(hours=24)
"""Time for which the previous secret stays valid."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_RULES = {
    "budget": "a budget is a whole number of samples, 0 or more",
    "rate": "a rate is a number of samples a second, from 0.001 to 1e9, or none",
    "networks": "a network is written like 10.0.0.0/8, without bits behind its length",
}

Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]


def _widen(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Widen a narrower IPv6 network to 64 bits, because one client has all its addresses."""
    return network.supernet(new_prefix=64) if network.version == 6 and network.prefixlen > 64 else network


Network = Annotated[IPvAnyNetwork, AfterValidator(_widen)]


def is_inside(address: str, network: IPv4Network | IPv6Network) -> bool:
    """Return whether an address belongs to a network; a text that is not an address does not."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)  # an IPv4 client of a socket for both
    return (mapped or found) in network


class Terms(Message):
    """The terms that the provider grants to a key."""

    budget: Count  # distinct samples that may be labelled
    rate: Annotated[float, Field(ge=0.001, le=1e9)] | None = None  # samples a second
    expires: Time | None = None
    networks: tuple[Network, ...] = ()  # those from which the key may ask; any if empty

    def admits(self, address: str) -> bool:
        """Return whether a client of this address may ask."""
        return not self.networks or any(is_inside(address, network) for network in self.networks)


class Secret(Message):
    """The ledger's record of a secret: SHA-256, last characters, and its end once it is replaced."""

    hash: Digest
    tail: str
    until: Time | None = None


class ModelUse(Message):
    """A model's record for a key: number of distinct samples labelled, and the mean subtracted from them."""

    answers: Count = 0
    calibration: Calibration | None = None
    mean: Digest | None = None  # of the fp32 numbers, lowest byte first; None once the key is forgotten

    @property
    def calibration_digest(self) -> str | None:
        """Digest of the calibration; ``None`` without one."""
        return None if self.calibration is None else self.calibration.digest

    def find_calibration(self, digest: str) -> Calibration | None:
        """Return the calibration by samples with a digest; ``None`` if the key can still get this one."""
        if self.calibration is None and self.answers:
            detail = "The key has labels of this model already; ask the provider for another key."
            raise Refusal("not-calibrated", detail)
        if self.calibration is not None and self.calibration.digest != digest:
            samples = f"{self.calibration.samples:,}"
            detail = f"The key was calibrated with {samples} other samples, and cannot be calibrated again."
            raise Refusal("not-calibrated", detail)
        return self.calibration


class Key(Message):
    """The state of one key in the log. Its name may be used again once the key is revoked."""

    number: Positive
    name: Name
    terms: Terms
    created: Time
    secrets: tuple[Secret, ...]  # the newest last
    revoked: Time | None = None
    forgotten: bool = False
    used: Count = 0  # distinct samples labelled so far
    last_used: Time | None = None
    busy_until: Annotated[float, Field(ge=0)] = 0.0  # second since 1970 when its rate has paid for all
    models: dict[ModelDigest, ModelUse] = Field(default_factory=dict)

    @property
    def balance(self) -> Balance:
        """Balance as the service reports it to the client."""
        budget = self.terms.budget
        return Balance(budget=budget, used=self.used, remaining=max(0, budget - self.used))

    def use(self, model: str) -> ModelUse:
        """Return the record of a model for the key."""
        return self.models.get(model, ModelUse())

    def at(self, time: str) -> Key:
        """Return the key with times that a wrong clock put too far into the future set back."""
        now = datetime.fromisoformat(time)
        latest = as_text(now + GRACE)
        ends = [{"until": one.until and min(one.until, latest)} for one in self.secrets]
        ended = tuple(one.model_copy(update=end) for one, end in zip(self.secrets, ends, strict=True))
        return self.model_copy(update={"secrets": ended, "busy_until": min(self.busy_until, now.timestamp())})

    def end(self, time: str, secret: str | None = None) -> Literal["revoked-key", "expired-key"] | None:
        """Return why the key, or the secret with a hash, is not valid at a time; ``None`` if it is valid."""
        if self.revoked is not None:
            return "revoked-key"
        ends = (self.terms.expires, *(one.until for one in self.secrets if one.hash == secret))
        return "expired-key" if any(end is not None and end <= time for end in ends) else None

    def check(self, time: str, secret: str | None = None) -> None:
        """Refuse the key, or the secret with a hash, if it has ended."""
        if kind := self.end(time, secret):
            how = "was revoked" if kind == "revoked-key" else "has expired"
            raise Refusal(kind, f"The key {how}; ask the provider for another.", key=self.name)

    def check_budget(self, new: int) -> None:
        """Refuse a request for more new samples than the budget has left."""
        if new > 0 and self.used + new > self.terms.budget:
            detail = (
                f"The request holds {new:,} samples not asked before, but the key's budget has "
                f"{self.balance.remaining:,} left; nothing was charged."
            )
            raise Refusal("over-budget", detail)


def make_secret() -> str:
    """Make a secret of 256 random bits, with a prefix by which scanners of files recognise it."""
    return f"ucds_{secrets.token_urlsafe(32)}"


def keep_secret(secret: str) -> Secret:
    """Return the ledger's record of a secret."""
    # The secret is 256 random bits, so a slow hash would protect nothing.
    return Secret(hash=hashlib.sha256(secret.encode()).hexdigest(), tail=secret[-4:])


def as_text(time: datetime) -> str:
    """Write a time as the ledger does, in UTC; these texts sort in the order of time."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def make_terms(present: Terms | None = None, **changes: Any) -> Terms:
    """Return terms with the changes of a user, who may write ``none`` for no rate and ``any`` for networks.

    ``expires`` is written as :func:`parse_end` reads it.
    """
    if "expires" in changes:
        changes["expires"] = parse_end(changes["expires"])
    if "networks" in changes:
        changes["networks"] = tuple(network for network in changes["networks"] if network != "any")
    if changes.get("rate") == "none":
        changes["rate"] = None
    try:
        return Terms.model_validate(dict(present or ()) | changes, strict=False)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        wrong = ", ".join(changes[field]) if field == "networks" else changes[field]
        raise InputError(f"{brief(wrong)} cannot be used: {_RULES[field]}") from None


def check_name(name: str) -> None:
    """Refuse a text that cannot be the name of a key."""
    if not re.fullmatch(_NAME, name) or name != without_secrets(name):  # a key is no name of one
        raise InputError(f"{brief(name)} cannot name a key: a name has up to 64 letters, digits and . _ @ -")


def parse_end(text: str) -> str | None:
    """Return the end of a key as the ledger writes it: from ``90d``, ``12h``, ``30m``, a date, ``never``."""
    if text == "never":
        return None
    try:
        if found := re.fullmatch(r"([0-9]{1,6})([mhd])", text):
            return as_text(datetime.now(UTC) + timedelta(**{_UNITS[found[2]]: int(found[1])}))
        time = datetime.fromisoformat(text)
        return as_text(time if time.tzinfo else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        example = date.today() + timedelta(days=365)
        raise InputError(f"{brief(text)} cannot end a key: write 90d, 12h, 30m, {example} or never") from None
