"""Receipts: the provider's signed word on each answer, which the client checks and keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from ucds.errors import DamagedFileError, InputError, first_problem
from ucds.files import append_line
from ucds.labels.wire import Count, HexBytes, Message, Receipt, Signed


class ReceiptError(ValueError):
    """A receipt that does not hold for the answer that it came with."""


class KeptReceipt(Message):
    """A receipt with the answers that it stands for: one line of a client's file of receipts.

    Attributes:
        receipt: receipt as it came.
        labels: label of each content asked about, by content key in hexadecimal digits.
    """

    receipt: Receipt
    labels: dict[HexBytes, Count]


def receipts_path(out: Path) -> Path:
    """Return the path of the receipts for the label file ``out``."""
    return out.with_name(f"{out.name}.receipts")


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


def check_receipt(
    receipt: Receipt | None, labels: Mapping[bytes, int], *, signer: str | None, model_digest: str
) -> None:
    """Make sure that a receipt is the provider's word on these answers.

    Args:
        receipt: receipt that came with the answers.
        labels: label of each content asked about.
        signer: public key that the service named before; ``None`` where it gives no receipts.
        model_digest: digest of the model's weights that the service named before.

    Raises:
        ReceiptError: the receipt is missing, or does not hold for these answers.
    """
    if receipt is None:
        if signer is not None:
            raise ReceiptError("a receipt is missing")
    elif receipt.signer != signer:
        raise ReceiptError("a receipt is signed with another key than the service named")
    elif not is_authentic(receipt):
        raise ReceiptError("the signature of a receipt is wrong")
    elif receipt.model_digest != model_digest:
        raise ReceiptError("a receipt is for another model")
    elif receipt.answers_digest != answers_digest(labels.items()):
        raise ReceiptError("a receipt is for other answers")


def keep_receipt(path: Path, receipt: Receipt, labels: Mapping[bytes, int]) -> None:
    """Add a receipt to a file of receipts; it is on disk when this returns.

    A line that a crash cut short is dropped first: its answers are asked for again.

    Raises:
        NoSpaceError: the file cannot be written.
    """
    kept = KeptReceipt(receipt=receipt, labels={content.hex(): labels[content] for content in labels})
    append_line(path, kept.model_dump_json())


def read_receipts(path: Path) -> list[KeptReceipt]:
    """Read a file of receipts; a last line that a crash cut short is left out.

    Raises:
        InputError: there is no such file.
        DamagedFileError: a line is not a receipt.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise InputError(f"the receipts {path} cannot be read: {error.strerror}") from None
    kept = []
    for number, line in enumerate(lines, 1):
        try:
            kept.append(KeptReceipt.model_validate_json(line))
        except ValidationError as error:
            problem = first_problem(error)
            raise DamagedFileError(f"line {number} of {path} is not a receipt ({problem})") from None
    return kept
