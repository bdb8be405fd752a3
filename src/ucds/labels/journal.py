"""Keeps labels and receipts on disk as they arrive, so that a killed client never pays for one twice."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal, TypeVar

from pydantic import Field

from ucds.errors import DamagedFileError, InputError, RefusedError, warn
from ucds.files import digest_of, lock, writing
from ucds.labels import wire
from ucds.received import open_received, read_text

_Line = TypeVar("_Line", bound=wire.Message)
_CHECK_DIGITS = 16
_WORDS = {
    "url": "the address",
    "provider": "the model",
    "signer": "the signing key",
    "model_digest": "the digest of the model",
    "n_clusters": "the number of clusters",
    "calibration": "the calibration",
}


class KeptReceipt(wire.Message):
    """A receipt with the answers that it covers: one line of a client's journal."""

    receipt: wire.Receipt
    labels: dict[wire.ContentKey, wire.Count]


class _Header(wire.Message):
    format: Literal["ucds-receipts/1"] = "ucds-receipts/1"
    url: str
    provider: str
    model_digest: wire.ModelDigest
    n_clusters: wire.Clusters
    signer: wire.PublicKey
    calibration: wire.ModelDigest | None = None
    order: wire.ContentKey = Field(default_factory=lambda: secrets.token_hex(16))  # secret of their order


def journal_path(out: Path) -> Path:
    """Return the path of the journal that lies beside the label file ``out``."""
    return out.with_name(f"{out.name}.receipts")


class Journal:
    """The labels received so far, each answer with its receipt: a file to which lines are only added.

    A line holds JSON, after a blank and the start of the JSON's SHA-256. The first line names the service,
    its model, and the key that signs the receipts. Each further line holds one receipt and its labels, under
    the content keys of what was sent. The journal holds no file names: a renamed sample keeps its label, a
    changed one is asked about again. A line that is damaged or was cut short by a crash is dropped: its
    samples are asked about again, which costs nothing. The file stays when the query is complete: its
    receipts are the client's evidence.

    Attributes:
        order: secret that determines the order of the questions, so that a resumed query keeps the order.
    """

    def __init__(self, path: Path, *, url: str, info: wire.ServiceInfo) -> None:
        self.path = path
        self.labels: dict[bytes, int] = {}
        self._header = _Header(
            url=url,
            provider=info.provider,
            model_digest=info.model_digest,
            n_clusters=info.n_clusters,
            signer=info.signer,
            calibration=None if info.calibration is None else info.calibration.digest,
        )
        with writing(path), ExitStack() as unless_read:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = unless_read.enter_context(open_received(path, "a+b"))
            if not lock(self._file):
                raise InputError(f"another process is asking for the labels in {path}")
            self._read()
            unless_read.pop_all()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        with writing(self.path):  # what found no room before is tried once more
            self._file.close()

    def add(self, kept: KeptReceipt) -> None:
        """Add one answer; it is on disk when this returns.

        If the disk is full, the answer is written with the next ones or at the end, if there is room again.
        """
        self._append(kept)
        self.labels |= _labels_of(kept)

    def _append(self, line: wire.Message) -> None:
        content = line.model_dump_json().encode()
        with writing(self.path):
            self._file.write(_check_of(content) + b" " + content + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def _read(self) -> None:
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        header = _parse(_Header, lines[0]) if lines else self._header
        if header is None:
            raise DamagedFileError(
                f"{self.path} is not a journal: delete it to ask again; paid labels cost nothing then"
            )
        self.order = bytes.fromhex(header.order)
        if len(lines) < 2:  # no label yet: nothing that could not be mixed
            self._file.truncate(0)
            return self._append(self._header.model_copy(update={"order": header.order}))
        self._refuse_other(header)
        entries = [_parse(KeptReceipt, line) for line in lines[1:]]
        for entry in entries:
            self.labels |= {} if entry is None else _labels_of(entry)
        if damaged := sum(entry is None for entry in entries):
            warn(
                f"{damaged} of {len(entries)} lines of {self.path} are damaged; their labels are asked again"
            )

    def _refuse_other(self, header: _Header) -> None:
        for name, words in _WORDS.items():
            before, now = getattr(header, name), getattr(self._header, name)
            if before != now:
                raise RefusedError(
                    f"{self.path} holds labels for which {words} is {before or 'none'}, but now it is "
                    f"{now or 'none'}: such labels do not mix. Ask the provider which is right, choose "
                    "another `out`, or delete that file to begin anew"
                )


def read_receipts(path: Path) -> list[KeptReceipt]:
    """Read the receipts in a client's journal; a last line that a crash cut short is left out."""
    try:
        lines = read_text(path).split(b"\n")[:-1]
    except OSError as error:
        raise InputError(f"the receipts {path} cannot be read: {error.strerror}") from None
    if not lines or _parse(_Header, lines[0]) is None:
        raise DamagedFileError(f"{path} does not begin as a client's file of receipts")
    found = []
    for number, line in enumerate(lines[1:], 2):
        if (kept := _parse(KeptReceipt, line)) is None:
            raise DamagedFileError(f"line {number} of {path} was changed after it was written")
        found.append(kept)
    return found


def _check_of(content: bytes) -> bytes:
    return digest_of(content)[:_CHECK_DIGITS].encode()


def _parse(kind: type[_Line], line: bytes) -> _Line | None:
    """Read a line; ``None`` if it was changed after it was written."""
    check, _, content = line.removesuffix(b"\n").partition(b" ")
    if check != _check_of(content):
        return None
    try:
        return kind.model_validate_json(content)
    except ValueError:
        return None


def _labels_of(kept: KeptReceipt) -> dict[bytes, int]:
    return {bytes.fromhex(key): label for key, label in kept.labels.items()}
