"""Puts the samples of several requests together into full batches for the model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ucds.serving.labeller import Labeller, Labels, Rows


class QueueFull(Exception):  # noqa: N818  (the state of a queue, not a fault)
    """There is no room for so many samples now."""


class Stopped(Exception):  # noqa: N818
    """The batcher takes no more samples."""


@dataclass(eq=False)
class _Job:
    """The samples of one request on their way through the model."""

    rows: Rows
    future: Future[Labels]
    labels: Labels
    begun: int = 0  # rows taken into batches
    done: int = 0  # rows answered
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """One thread runs the model, on batches filled from the requests in order of arrival.

    A batch waits a moment for further requests when it is not full; then it is filled up with zeros.
    A request of more samples than a batch holds is split.

    Args:
        labeller: the model.
        max_queue: samples reserved at once.
        max_wait: seconds a batch may wait to be filled.
    """

    def __init__(self, labeller: Labeller, max_queue: int, max_wait: float) -> None:
        self._labeller = labeller
        self._max_wait = max_wait
        self._free = self._room = max_queue
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self.batches = 0
        self.rows = 0
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Samples reserved and not yet released."""
        return self._room - self._free

    @property
    def alive(self) -> bool:
        """Whether the model still answers."""
        return self._thread.is_alive() and not self._stopping

    @contextmanager
    def reservation(self, count: int) -> Iterator[None]:
        """Keep room for samples from before they are decoded until they are answered.

        Raises:
            QueueFull: there is none.
        """
        with self._changed:
            if count > self._free:
                raise QueueFull
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count

    def submit(self, rows: Rows) -> Future[Labels]:
        """Label ``(n, *row_shape)`` rows, for which room was reserved.

        Raises:
            Stopped: the batcher was closed.
        """
        job = _Job(rows, Future(), np.empty(len(rows), np.int64))
        job.future.set_running_or_notify_cancel()  # from here on nobody can cancel it
        with self._changed:
            if self._stopping:
                raise Stopped
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Answer what was submitted, then stop the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        size = self._labeller.batch_size
        buffer = np.zeros((size, *self._labeller.row_shape), self._labeller.dtype)
        while parts := self._next_parts(size):
            used = 0
            for job, begin, end in parts:
                buffer[used : used + end - begin] = job.rows[begin:end]
                used += end - begin
            buffer[used:] = 0
            self.batches, self.rows = self.batches + 1, self.rows + used
            self._answer(parts, buffer)

    def _answer(self, parts: list[tuple[_Job, int, int]], buffer: Rows) -> None:
        try:
            labels = self._labeller.label(buffer)
        except Exception as error:  # the requests in this batch fail; the service goes on
            for job in {id(job): job for job, _, _ in parts}.values():
                self._fail(job, error)
            return
        used = 0
        for job, begin, end in parts:
            job.labels[begin:end] = labels[used : used + end - begin]
            used += end - begin
            job.done += end - begin
            if job.done == len(job.rows) and not job.future.done():
                job.future.set_result(job.labels)

    def _fail(self, job: _Job, error: Exception) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
        if not job.future.done():
            job.future.set_exception(error)

    def _next_parts(self, size: int) -> list[tuple[_Job, int, int]]:
        """Wait for a batch, and take it: which rows of which requests; empty when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            while self._jobs and not self._stopping:
                waiting = sum(len(job.rows) - job.begun for job in self._jobs)
                patience = self._jobs[0].since + self._max_wait - time.monotonic()
                if waiting >= size or patience <= 0:
                    break
                self._changed.wait(patience)
            return self._take(size)

    def _take(self, size: int) -> list[tuple[_Job, int, int]]:
        parts: list[tuple[_Job, int, int]] = []
        while self._jobs and size > 0:
            job = self._jobs[0]
            end = min(job.begun + size, len(job.rows))
            parts.append((job, job.begun, end))
            size -= end - job.begun
            job.begun = end
            if end == len(job.rows):
                self._jobs.popleft()
        return parts
