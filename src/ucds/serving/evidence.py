"""What receipts and checkpoints say of a ledger, ready to be compared with it."""

from __future__ import annotations

from pathlib import Path

from ucds.labels.receipts import answers_digest, is_authentic, read_receipts
from ucds.serving.audit import Head
from ucds.serving.checkpoints import read_checkpoints
from ucds.serving.verification import Claim


def claims_of_checkpoints(path: Path) -> tuple[list[Claim], list[str]]:
    """Return what the checkpoints of a file or folder claim, and a sentence for each false signature.

    Raises:
        InputError: there is no such file or folder.
        DamagedFileError: a line or a file is not a checkpoint.
    """
    claims, faults = [], []
    for checkpoint in read_checkpoints(path):
        source = f"the checkpoint of {checkpoint.time} in {path}"
        if is_authentic(checkpoint):
            claims.append(Claim(source, Head(checkpoint.entries, checkpoint.hash), checkpoint.signer))
        else:
            faults.append(f"{source} has a wrong signature")
    return claims, faults


def claims_of_receipts(path: Path) -> tuple[list[Claim], list[str]]:
    """Return what a client's receipts claim, and a sentence for each that does not hold in itself.

    Raises:
        InputError: there is no such file.
        DamagedFileError: a line is not a receipt.
    """
    claims, faults = [], []
    for number, kept in enumerate(read_receipts(path), 1):
        receipt, source = kept.receipt, f"receipt {number} of {path}"
        labels = {bytes.fromhex(content): label for content, label in kept.labels.items()}
        if not is_authentic(receipt):
            faults.append(f"{source} has a wrong signature")
        elif receipt.answers_digest != answers_digest(labels.items()):
            faults.append(f"{source} stands beside other labels than it was given for")
        else:
            head = Head(receipt.entry, receipt.entry_hash)
            claims.append(Claim(source, head, receipt.signer, receipt.model_digest, receipt.answers_digest))
    return claims, faults
