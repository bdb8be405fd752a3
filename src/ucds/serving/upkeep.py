"""What a provider does to a ledger: accept a loss, archive old entries, forget the answers of a key."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from ucds.errors import DamagedFileError, InputError
from ucds.files import write_atomically
from ucds.serving import log
from ucds.serving.checkpoints import read_checkpoints
from ucds.serving.ledger import Ledger
from ucds.serving.state import Archived, Forgotten, LossAccepted
from ucds.serving.verify import verify


def accept_loss(ledger: Ledger, checkpoints: Path | None = None, signer: str | None = None) -> int:
    """Record the decision to go on without entries that checkpoints name, or with another signing key.

    Returns:
        Number of checkpoints that name entries which are lost.
    """
    named = [] if checkpoints is None else read_checkpoints(checkpoints)
    lost = [told for told in named if not ledger.holds(told)]
    with ledger.writing() as writing:
        signer = None if signer == writing.state.signer else signer
        if any(told.signer not in writing.state.signers for told in lost):
            raise InputError(f"the checkpoints {checkpoints} were not signed for this ledger")
        if not lost and signer is None:
            raise InputError("nothing is lost: the ledger holds all that was named, and its signer stays")
        last = max(lost, key=lambda told: told.number, default=None)
        writing.append(LossAccepted(lost=last, signer=signer))
    return len(lost)


def forget(ledger: Ledger, name: str) -> int:
    """Delete the answers of the last revoked key of a name, and return how many there were."""
    with ledger.writing() as writing:
        named = [key for key in writing.state.keys.values() if key.name == name and key.revoked]
        if not named or named[-1].forgotten:
            raise InputError(f"there are no answers of a revoked key {name!r}: revoke it first")
        number = named[-1].number
        writing.append(Forgotten(key=number))
        return writing.connection.execute(log.answers.delete().filter_by(key=number)).rowcount


def archive(ledger: Ledger, out: Path) -> int:
    """Move all entries before the last snapshot into a file, and return how many there are.

    Answers stay, so that a question asked again stays free. `verify` takes the file in place of the entries.
    """
    if out.exists():
        raise InputError(f"{out} is there already: name a new file for the archive")
    if faults := verify(ledger.place).faults:
        raise DamagedFileError(f"the ledger does not agree with its log, so it stays as it is: {faults[0]}")
    with ledger.reading() as (connection, _):
        snapshot, oldest = log.read_snapshot(connection), next(log.read_entries(connection))
        if snapshot is None or snapshot == oldest:
            raise InputError("there is nothing to archive: the log has no snapshot since its first entry")
        old = takewhile(lambda entry: entry != snapshot, log.read_entries(connection))
        write_atomically(out, lambda file: file.writelines(map(log.to_line, old)))
        out.chmod(0o600)
    with ledger.writing() as writing:
        if log.read_snapshot(writing.connection) != snapshot:
            out.unlink()
            raise InputError("the service took a snapshot meanwhile: run the same command again")
        writing.append(Archived(first=snapshot.number))
        writing.connection.execute(log.log.delete().where(log.log.c.number < snapshot.number))
    return snapshot.number - oldest.number
