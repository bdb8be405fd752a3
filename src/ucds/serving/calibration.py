"""Calibrations: the mean from which the samples of a key are seen, fixed once for a key and a model.

A model that recentres labels the samples of another domain better from their own mean. An answer must not
depend on the other samples of its request, so the mean is taken from a sample that the client sends once.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from ucds.labels.wire import Calibration
from ucds.serving import keys, tables
from ucds.serving.book import Book
from ucds.serving.keys import KeyEnded, KeyRecord

Mean = npt.NDArray[np.float32]
_TYPE = "<f4"


class NotCalibrated(Exception):  # noqa: N818  (an answer of the ledger, not a fault)
    """A key that cannot be calibrated any more: it has another calibration, or answers of the model.

    Args:
        reason: one sentence that says which.
    """


@dataclass(frozen=True, eq=False)
class KeyMean:
    """The mean from which the samples of a key are seen.

    Attributes:
        told: number and digest of the samples, which the client is told.
        mean: ``(width,)`` mean of the unit features of the samples.
    """

    told: Calibration
    mean: Mean


def find(connection: Connection, key: int, model: str) -> KeyMean | None:
    """Read the calibration of a key for a model."""
    asked = select(tables.calibrations).filter_by(key_id=key, model=model)
    row = connection.execute(asked).first()
    if row is None:
        return None
    mean = np.frombuffer(base64.b64decode(row.mean), _TYPE).astype(np.float32)
    return KeyMean(Calibration(samples=row.samples, digest=row.digest), mean)


def find_digest(connection: Connection, key: int, model: str) -> str | None:
    """Read the digest of the calibration of a key for a model, without its mean."""
    asked = select(tables.calibrations.c.digest).filter_by(key_id=key, model=model)
    return connection.execute(asked).scalar()


def check_open(book: Book, key: KeyRecord, model: str, digest: str) -> KeyMean | None:
    """Return the calibration of a key if it is of the same samples; ``None`` if the key can have this one.

    Args:
        book: ledger.
        key: key to calibrate.
        model: digest of the model.
        digest: digest of the contents of the samples, see `ucds.labels.calibration.digest_of_contents`.

    Raises:
        NotCalibrated: the key has another calibration, or labels of the model.
    """
    with book.transaction() as connection:
        return _check_open(connection, key.number, model, digest)


def calibrate(book: Book, key: KeyRecord, model: str, mean: KeyMean) -> KeyMean:
    """Fix, for good, the mean from which a model sees the samples of a key.

    Returns:
        The calibration; that of another request with the same samples, if that one came first.

    Raises:
        NotCalibrated: the key has another calibration, or labels of the model.
        KeyEnded: the key was revoked meanwhile, or its time is over.
    """
    with book.writing() as writing:
        record = keys.find(writing.connection, key.number)
        if record is None or not record.is_active:
            raise KeyEnded
        there = _check_open(writing.connection, key.number, model, mean.told.digest)
        if there is None:
            told = {"mean": base64.b64encode(mean.mean.astype(_TYPE).tobytes()).decode()}
            writing.append("key-calibrated", key=key.number, model=model, **told, **mean.told.model_dump())
    return there or mean


def _check_open(connection: Connection, key: int, model: str, digest: str) -> KeyMean | None:
    found = find(connection, key, model)
    if found is not None and found.told.digest != digest:
        samples = found.told.samples
        raise NotCalibrated(f"The key was calibrated with {samples:,} other samples, and stays so.")
    answers = select(tables.answers.c.entry).filter_by(key_id=key, model=model).limit(1)
    if found is None and connection.execute(answers).first() is not None:
        raise NotCalibrated("The key has labels of this model already; ask the provider for another key.")
    return found
