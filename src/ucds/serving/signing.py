"""Signatures of the provider: an Ed25519 key in a file that only its owner can read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ucds.errors import DamagedFileError, InputError
from ucds.files import writing
from ucds.labels.wire import Signed
from ucds.received import read_text

SIGNING_KEY_FILE = "signing-key.pem"
_UNSIGNED = "0" * 128
_Statement = TypeVar("_Statement", bound=Signed)


class Signer:
    """Signs receipts and snapshots; its ``public`` key is in hexadecimal digits."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw().hex()

    @classmethod
    def open(cls, path: Path) -> Signer:
        """Read the private key of a PEM file; make the file if it does not exist."""
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} for a signing key")
        if not path.exists():
            _make_key_file(path)
        try:
            key = load_pem_private_key(read_text(path), password=None)
        except OSError as error:
            raise InputError(f"the signing key {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise DamagedFileError(f"{path} is not a file with an Ed25519 key (PEM, without a password)")
        return cls(key)

    def sign(self, kind: type[_Statement], **fields: Any) -> _Statement:
        """Return a signed statement of the given class."""
        unsigned = kind(signer=self.public, signature=_UNSIGNED, **fields)
        return unsigned.model_copy(update={"signature": self._key.sign(unsigned.signed_bytes()).hex()})


def _make_key_file(path: Path) -> None:
    """Write a new key, all of it or none; if two processes start at once, one key remains."""
    key = Ed25519PrivateKey.generate()
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Under another name at first, readable by its owner alone, so that nobody reads half a key.
    with writing(path), tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(file.name)
