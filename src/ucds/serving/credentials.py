"""The secrets that clients show: made here, and known to the ledger by their hash alone."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib

PREFIX = "ucds_"
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM, _CHECK = 43, 6  # characters; 62 ** 43 is a little more than 2 ** 256
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_RANDOM + _CHECK}}}")


def make_secret() -> str:
    """Make a secret of 256 random bits: ``ucds_``, 43 characters, and 6 that are their checksum.

    With the prefix a scanner finds a secret in a file, and with the checksum it knows that it is one,
    without asking anybody.
    """
    random = "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM))
    return PREFIX + random + _checksum(random)


def is_mistyped(secret: str) -> bool:
    """Return whether a secret has the form of ours and a wrong checksum: the ledger need not be asked."""
    return _FORM.fullmatch(secret) is not None and secret[-_CHECK:] != _checksum(
        secret[len(PREFIX) : -_CHECK]
    )


def hash_secret(secret: str) -> str:
    """Compute the hash under which the ledger keeps a secret."""
    # The secret is 256 random bits, so a slow hash would protect nothing.
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(random: str) -> str:
    """Write the CRC-32 of the random characters in base 62, six digits."""
    number, digits = zlib.crc32(random.encode()), ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
