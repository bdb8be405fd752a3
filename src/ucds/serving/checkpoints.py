"""Signed snapshots of the ledger while it is in use, and the file of checkpoints that names them.

A snapshot in the log makes opening fast. Its signed statement (a checkpoint) shows later whether the ledger
was set back or rewritten. Keep it where nobody who controls the ledger can change it.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from ucds.errors import DamagedFileError, InputError, UserError, first_problem
from ucds.files import append_line, require_writable
from ucds.labels.wire import is_authentic
from ucds.serving.ledger import Ledger
from ucds.serving.ops import record
from ucds.serving.signing import Signer
from ucds.serving.state import LossAccepted, Statement

EVERY = 1000
"""Largest number of entries between two snapshots."""

_EVERY_SECONDS = 3600.0
_QUIET = timedelta(hours=12)  # half of the time by which a clock may be ahead of the last entry
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 30.0
_BEGINNING = b'{"signer":"'
logger = logging.getLogger("ucds.serving")


def read_checkpoints(path: Path) -> list[Statement]:
    """Read a file of checkpoints, one a line; a last line that a crash cut short is left out."""
    try:
        *lines, rest = path.read_bytes().split(b"\n")
        if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):
            lines.append(rest)
        found = [Statement.model_validate_json(line) for line in lines]
    except OSError as error:
        raise InputError(f"the checkpoints {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise DamagedFileError(f"{path} is not a file of checkpoints ({first_problem(error)})") from None
    for number, statement in enumerate(found, 1):
        if not is_authentic(statement):
            raise DamagedFileError(f"line {number} of {path} has a wrong signature")
    return found


def accept_loss(ledger: Ledger, checkpoints: Path) -> int:
    """Record the decision to go on without entries that checkpoints name; return how many checkpoints do."""
    lost = [told for told in read_checkpoints(checkpoints) if not ledger.holds(told)]
    if not lost:
        raise InputError("nothing is lost: the ledger holds all that the checkpoints name")
    if ledger.signers and any(told.signer not in ledger.signers for told in lost):
        raise InputError(f"the checkpoints {checkpoints} were not signed for this ledger")
    last = max(lost, key=lambda told: (told.era, told.number))
    with ledger.writing() as writing:
        writing.append(LossAccepted(lost=last))
        if not writing.state.excuses(last):
            raise InputError("entries were added to the backup: restore it again, and accept the loss first")
    return len(lost)


class Snapshots:
    """Signs the state of a ledger at the start, after a number of entries, every hour, and at the end.

    At the start, every hour and at the end, the answers are also counted: nothing else would show that an
    answer was removed, and the service would charge for it again. After the start, this runs in its own
    thread, so that no answer waits for it. Each signed statement is a security event, and a line in the file
    of checkpoints, if there is one. Any failure is counted, logged by the service, and tried again.
    """

    def __init__(
        self,
        ledger: Ledger,
        signer: Signer,
        file: Path | None = None,
        *,
        every: int = EVERY,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._ledger, self._signer, self._file = ledger, signer, file
        self._every, self._retry_seconds = every, retry_seconds
        if file is not None:
            self._check_file(file)
        self._last = ledger.state().statement
        self._write(1)
        self.failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the last snapshot, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def _check_file(self, path: Path) -> None:
        """Make sure that a file can take checkpoints, and that the ledger holds every entry in the file."""
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} for checkpoints")
        require_writable(path)
        for told in read_checkpoints(path) if path.exists() else ():
            if not self._ledger.holds(told):
                raise InputError(
                    f"the ledger {self._ledger.shown} does not hold entry {told.number} of the checkpoint of "
                    f"{told.time} in {path}: it was set back or replaced, or another key signed. "
                    "Restore it, or accept the loss with `ucds ledger accept-loss`"
                )

    def _work(self) -> None:
        is_last, pause = False, _LOOK_SECONDS
        while not is_last:
            is_last = self._stopping.wait(pause)
            hourly = is_last or time.monotonic() >= self._next_hour
            try:
                self._write(1 if hourly else self._every)
                pause = _LOOK_SECONDS
            except Exception as error:  # or the thread would end, and nobody would see it
                self.failures += 1
                pause = self._retry_seconds
                is_fault = not isinstance(error, UserError | OSError)
                logger.error("a snapshot could not be written: %s", error, exc_info=is_fault)

    def _write(self, least: int) -> None:
        """Take a snapshot if it is due, and write the newest one, of any replica, into the file."""
        present = self._ledger.state()
        is_quiet = datetime.fromisoformat(present.time) + _QUIET < datetime.now(UTC)
        least = 0 if is_quiet else least
        if present.unsigned >= least:
            self._ledger.take_snapshot(self._signer, least)
        if least <= 1:
            self._ledger.check_counts()
            self._next_hour = time.monotonic() + _EVERY_SECONDS
        newest = self._ledger.state().statement
        if newest is None or newest == self._last:
            return
        if self._file is not None:
            append_line(self._file, newest.model_dump_json())
        self._last = newest
        record("snapshot", **newest.model_dump())
