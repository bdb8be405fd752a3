"""Identities of samples and of collections of samples, taken from what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ucds.math.arrays import IntArray

KEY_BYTES = 16


def content_key(data: bytes | memoryview) -> bytes:
    """Compute the 16-byte key of some content: equal for equal contents, whatever their names."""
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


def fingerprint(
    keys: Sequence[bytes], ids: Sequence[str], domain: IntArray, domain_names: Sequence[str], kind: str
) -> str:
    """Compute a hash of everything that defines a collection of samples."""
    digest = hashlib.sha256()
    for text in chain((kind, *domain_names), ids):  # ids may be computed one by one
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    digest.update(np.ascontiguousarray(domain, dtype="<i8").data)
    for key in keys:
        digest.update(key)
    return digest.hexdigest()
