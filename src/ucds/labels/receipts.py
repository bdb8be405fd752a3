"""Receipts: the provider's signed word on each answer, which the client checks and keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from ucds.labels.wire import Count, HexBytes, Message, Receipt, Signed


class KeptReceipt(Message):
    """A receipt with the answers that it stands for: one line of a client's journal."""

    receipt: Receipt
    labels: dict[HexBytes, Count]


def answers_digest(answers: Iterable[tuple[bytes, int]]) -> str:
    """Compute the SHA-256 of answers given at once; it does not depend on their order.

    It covers, in the order of the content keys, each key (16 bytes) and its label (8 bytes, big-endian).
    """
    digest = hashlib.sha256()
    for content, label in sorted(answers):
        digest.update(content + label.to_bytes(8, "big", signed=True))
    return digest.hexdigest()


def is_authentic(statement: Signed) -> bool:
    """Return whether a statement was signed with the key that it names."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(statement.signer))
    try:
        key.verify(bytes.fromhex(statement.signature), statement.signed_bytes())
    except InvalidSignature:
        return False
    return True


def find_fault(
    receipt: Receipt, labels: Mapping[bytes, int], *, signer: str, model_digest: str
) -> str | None:
    """Return why a receipt is not the provider's word on these answers; ``None`` if it is."""
    if receipt.signer != signer:
        return "a receipt is signed with another key than the service named"
    if not is_authentic(receipt):
        return "the signature of a receipt is wrong"
    if receipt.model_digest != model_digest:
        return "a receipt is for another model"
    if receipt.answers_digest != answers_digest(labels.items()):
        return "a receipt is for other answers"
    return None
