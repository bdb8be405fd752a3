"""Bounds on how fast one key may ask, kept by one process or shared by replicas in PostgreSQL."""

from __future__ import annotations

import fcntl
import math
import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection, Float, bindparam, func
from sqlalchemy.dialects.postgresql import insert

from ucds.labels.wire import Budget
from ucds.serving import tables

BURST = 10.0
"""Seconds of its rate that a key may save up."""
_BUCKET = struct.Struct("dd")


class Rates(Protocol):
    """One token bucket for each key, in samples; usable from several threads.

    A request needs one token to be let in. Once its samples are counted, it pays for the others as well, and
    the bucket may go below zero. So the number of samples need not be known beforehand, and no request is
    too large for the bucket.
    """

    def admit(self, key: int, rate: float) -> int | None:
        """Take a token, and return ``None``; without one, return the whole seconds until there is one.

        Args:
            key: number of the key.
            rate: samples a second.
        """

    def pay(self, key: int, rate: float, count: int) -> float:
        """Take tokens, whether they are there or not; return those that are left."""


Bucket = tuple[float, float]
"""Tokens of a key, and the time at which they were counted."""


class Buckets:
    """Buckets in the memory of one process; who reads and changes one holds them meanwhile, by ``with``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, Bucket] = {}

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def get(self, key: int) -> Bucket | None:
        """Return the bucket of a key, ``None`` before its first use."""
        return self._kept.get(key)

    def put(self, key: int, bucket: Bucket) -> None:
        """Keep the bucket of a key."""
        self._kept[key] = bucket


class FileBuckets(Buckets):
    """Buckets in a file that several processes of this machine have open.

    Args:
        number: number of the open file.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __enter__(self) -> None:
        super().__enter__()
        fcntl.lockf(self._number, fcntl.LOCK_EX)  # the lock of a process: its threads wait for the other one

    def __exit__(self, *error: object) -> None:
        fcntl.lockf(self._number, fcntl.LOCK_UN)
        super().__exit__(*error)

    def get(self, key: int) -> Bucket | None:
        """Return the bucket of a key, ``None`` before its first use."""
        data = os.pread(self._number, _BUCKET.size, key * _BUCKET.size)
        tokens, then = _BUCKET.unpack(data) if len(data) == _BUCKET.size else (0.0, 0.0)
        return (tokens, then) if then else None

    def put(self, key: int, bucket: Bucket) -> None:
        """Keep the bucket of a key."""
        os.pwrite(self._number, _BUCKET.pack(*bucket), key * _BUCKET.size)


class RateLimiter:
    """The buckets of one process, or of several on one machine.

    Args:
        clock: current time in seconds, the same for all processes; tests give their own.
        buckets: place of the buckets; the memory of this process if ``None``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, buckets: Buckets | None = None) -> None:
        self._clock, self._buckets = clock, buckets or Buckets()

    def admit(self, key: int, rate: float) -> int | None:
        """Take a token; see :class:`Rates`."""
        with self._buckets:
            tokens = self._count_tokens(key, rate)
            if tokens < 1:
                return _seconds_until_one(tokens, rate)
            self._buckets.put(key, (tokens - 1, self._clock()))
        return None

    def pay(self, key: int, rate: float, count: int) -> float:
        """Take tokens; see :class:`Rates`."""
        with self._buckets:
            left = self._count_tokens(key, rate) - count
            self._buckets.put(key, (left, self._clock()))
        return left

    def _count_tokens(self, key: int, rate: float) -> float:
        tokens, then = self._buckets.get(key) or (_most(rate), self._clock())
        return min(_most(rate), tokens + (self._clock() - then) * rate)


class SharedRateLimiter:
    """The buckets of all replicas, in their PostgreSQL, which tells them the time too.

    Args:
        transaction: opens a transaction.
    """

    def __init__(self, transaction: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._transaction = transaction
        clock = func.date_part("epoch", func.clock_timestamp())
        most, count, rate = (bindparam(name, type_=Float()) for name in ("most", "count", "rate"))
        row = tables.rates.c
        full = insert(tables.rates).values(key_id=bindparam("key"), tokens=most - count, time=clock)
        saved = func.least(most, row.tokens + (clock - row.time) * rate)
        changed = {"tokens": saved - count, "time": clock}
        self._take = full.on_conflict_do_update(index_elements=[row.key_id], set_=changed).returning(
            row.tokens
        )

    def admit(self, key: int, rate: float) -> int | None:
        """Take a token; see :class:`Rates`."""
        with self._transaction() as connection:
            left = self._change(connection, key, rate, 1)
            if left < 0:
                return _seconds_until_one(self._change(connection, key, rate, -1), rate)
        return None

    def pay(self, key: int, rate: float, count: int) -> float:
        """Take tokens; see :class:`Rates`."""
        with self._transaction() as connection:
            return self._change(connection, key, rate, count)

    def _change(self, connection: Connection, key: int, rate: float, count: int) -> float:
        given = {"key": key, "most": _most(rate), "count": float(count), "rate": rate}
        return float(connection.execute(self._take, given).scalar_one())


def limit_headers(budget: Budget, rate: float | None, tokens: float | None) -> dict[str, str]:
    """Write what a key may still ask as ``RateLimit`` fields (draft-ietf-httpapi-ratelimit-headers-10).

    What is left has as many digits as the whole, so that it does not change the length of an answer.

    Args:
        budget: budget of the key.
        rate: samples a second; ``None`` without bound.
        tokens: samples that the key may ask for at once; ``None`` if that was not looked up.
    """
    policies, limits = [], []
    if budget.limit is not None and budget.remaining is not None:
        policies.append(f'"budget";q={budget.limit}')
        limits.append(f'"budget";r={budget.remaining:0{len(str(budget.limit))}d}')
    if rate is not None:
        quota = int(_most(rate))
        policies.append(f'"rate";q={quota};w={BURST:.0f}')
        if tokens is not None:
            left, full = max(0, int(tokens)), max(0, math.ceil((_most(rate) - tokens) / rate))
            limits.append(f'"rate";r={left:0{len(str(quota))}d};t={full}')
    fields = {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(limits)}
    return {name: value for name, value in fields.items() if value}


def _most(rate: float) -> float:
    return max(1.0, rate * BURST)


def _seconds_until_one(tokens: float, rate: float) -> int:
    return max(1, math.ceil((1 - tokens) / rate))
