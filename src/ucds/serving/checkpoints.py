"""Checkpoints: the end of the log, signed, in a place that who holds the ledger cannot rewrite."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from ucds.errors import DamagedFileError, InputError, ServiceUnavailableError, UserError, first_problem
from ucds.files import append_line, write_text_atomically
from ucds.labels.urls import is_http_url
from ucds.labels.wire import Count, Digest, Signed, Time
from ucds.serving.audit import Head
from ucds.serving.keys import now
from ucds.serving.ledger import Ledger
from ucds.serving.signing import Signer

EVERY = 1000
_BEGINNING = b'{"signer":"'
_RETRY_SECONDS = 30.0
_HTTP_SECONDS = 20.0
logger = logging.getLogger("ucds.serving")


class Checkpoint(Signed):
    """The provider's signed word on its log at one moment.

    Attributes:
        format: kind of the statement.
        entries: number of entries.
        hash: hash of the last entry, which covers all entries.
        time: time of the checkpoint, ISO 8601 in UTC.
    """

    format: Literal["ucds-checkpoint/1"] = "ucds-checkpoint/1"
    entries: Count
    hash: Digest
    time: Time


class Place(Protocol):
    """Where checkpoints are written."""

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint.

        Raises:
            UserError: it cannot be written.
        """

    def read_last(self) -> Checkpoint | None:
        """Return the checkpoint with most entries, or ``None`` if there is none or none can be read here.

        Raises:
            DamagedFileError: the place holds something else.
        """


class FilePlace:
    """A file with one checkpoint a line, which only ever grows."""

    def __init__(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} for checkpoints")
        self._path = path

    def write(self, checkpoint: Checkpoint) -> None:
        """Add a line."""
        append_line(self._path, checkpoint.model_dump_json())

    def read_last(self) -> Checkpoint | None:
        """Read the file; one that holds anything else must not be written into."""
        return _longest(read_checkpoints(self._path)) if self._path.exists() else None


class FolderPlace:
    """A folder with one file for each checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a file, named after the number of entries."""
        write_text_atomically(self._path / _file_name(checkpoint), checkpoint.model_dump_json() + "\n")

    def read_last(self) -> Checkpoint | None:
        """Read the files of the folder."""
        return _longest(read_checkpoints(self._path))


class HttpPlace:
    """An address below which each checkpoint is put under a name of its own; its query stays at the end."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._parts = parts._replace(path=parts.path.rstrip("/"))

    def write(self, checkpoint: Checkpoint) -> None:
        """Send the checkpoint by PUT; any status of success will do."""
        parts, name = self._parts, _file_name(checkpoint)
        # A name before an "@" and a query may be secrets.
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        headers = {"Content-Type": "application/json"}
        try:
            answer = httpx.put(
                parts._replace(path=f"{parts.path}/{name}").geturl(),
                content=checkpoint.model_dump_json(),
                headers=headers,
                timeout=_HTTP_SECONDS,
            )
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ServiceUnavailableError(f"{shown} cannot be reached: {reason}") from None
        if not answer.is_success:
            raise ServiceUnavailableError(f"{shown} answers {answer.status_code} to a checkpoint")

    def read_last(self) -> None:
        """Read nothing: the address may be one that takes, and does not give."""


def parse_place(place: str | Path) -> Place:
    """Return the place of checkpoints that a path or an address means.

    Args:
        place: folder that exists; file, made if it does not exist; or http or https address.

    Raises:
        InputError: the place cannot be used.
        DamagedFileError: the file holds something else.
    """
    text = str(place)
    if text.startswith(("http://", "https://")):
        if not is_http_url(text):
            # The address is not repeated: it may hold a password.
            raise InputError("the address of the checkpoints cannot be used: check its host and its port")
        return HttpPlace(text)
    path = Path(place)
    return FolderPlace(path) if path.is_dir() else FilePlace(path)


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Read the checkpoints of a file or folder.

    Raises:
        InputError: there is no such file or folder.
        DamagedFileError: a line or a file is not a checkpoint.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found = []
    for file in files:
        try:
            *lines, rest = file.read_bytes().split(b"\n")
            found += [Checkpoint.model_validate_json(line) for line in lines]
            if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):  # cut short by a crash
                Checkpoint.model_validate_json(rest)
        except OSError as error:
            raise InputError(f"the checkpoints {file} cannot be read: {error.strerror}") from None
        except ValidationError as error:
            raise DamagedFileError(f"{file} is not a file of checkpoints ({first_problem(error)})") from None
    return found


class CheckpointWriter:
    """Writes a checkpoint at the start, after every so many entries, and at the end.

    It works in a thread of its own, and no answer waits for it. A place that cannot be written is named in
    the log of the service, and is tried again after some seconds, whatever is added to the ledger meanwhile.

    Args:
        ledger: ledger whose log is signed.
        signer: signs the checkpoints.
        place: place to write to.
        every: number of entries between two checkpoints.
        retry_seconds: seconds from a failure to the next try.

    Attributes:
        failures: number of tries that failed.

    Raises:
        InputError: the log does not hold what the last checkpoint says.
        UserError: the first checkpoint cannot be written.
    """

    def __init__(
        self,
        ledger: Ledger,
        signer: Signer,
        place: Place,
        every: int = EVERY,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        last = place.read_last()
        if last is not None and not ledger.holds(Head(last.entries, last.hash)):
            raise InputError(
                f"the ledger does not hold entry {last.entries} of the checkpoint of {last.time}: it was "
                "wound back or replaced. Restore it, or write the checkpoints of this one to another place"
            )
        self._ledger, self._signer, self._place, self._every = ledger, signer, place, every
        self._retry_seconds = retry_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self.failures = 0
        self._written = -1 if last is None else last.entries
        self._write()
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
        self._thread.start()

    def note(self, entries: int) -> None:
        """Learn how many entries the log has."""
        if entries - self._written >= self._every:
            self._wake.set()

    def close(self) -> None:
        """Write the last checkpoint, and end the thread; a second call does nothing."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        failing = stopping = False
        while not stopping:
            if failing:
                self._stopping.wait(self._retry_seconds)
            else:
                self._wake.wait()
            self._wake.clear()
            # Read before the write: if the end is asked for during the write, entries that came meanwhile
            # are written in one more turn.
            stopping = self._stopping.is_set()
            try:
                self._write()
                failing = False
            except (UserError, OSError) as error:
                self.failures += 1
                failing = True
                logger.error("a checkpoint could not be written: %s", error)

    def _write(self) -> None:
        head = self._ledger.read_head()
        if head.entries != self._written:
            self._place.write(self._signer.sign(Checkpoint, entries=head.entries, hash=head.hash, time=now()))
            self._written = head.entries


def _longest(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    return max(checkpoints, key=lambda checkpoint: checkpoint.entries, default=None)


def _file_name(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.entries:012d}.json"
