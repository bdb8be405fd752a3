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
    """The queue has no room for so many samples now."""


class Stopped(Exception):  # noqa: N818
    """The batcher takes no more samples."""


@dataclass(eq=False)
class _Job:
    """The samples of one request on their way through the model; `begun` rows are in batches already."""

    rows: Rows
    labels: Labels
    future: Future[Labels] = field(default_factory=Future)
    begun: int = 0
    since: float = field(default_factory=time.monotonic)


_Part = tuple[_Job, slice, slice]
"""A request, rows of it, and the place of these rows in a batch."""


class Batcher:
    """One thread that runs the model on batches, filled from the requests in order of arrival.

    A batch that is not full waits a moment for further requests; then it is filled up with zeros.
    A request of more samples than a batch holds is split.

    Args:
        labeller: model.
        max_queue: samples that may be reserved at once.
        max_wait: seconds that a batch may wait to be filled.
    """

    def __init__(self, labeller: Labeller, max_queue: int, max_wait: float) -> None:
        self._labeller, self._max_wait = labeller, max_wait
        self._free = self._room = max_queue
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self.batches = self.rows = 0
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Number of samples reserved and not yet released."""
        return self._room - self._free

    @property
    def alive(self) -> bool:
        """Whether the model still answers."""
        return self._thread.is_alive() and not self._stopping

    @contextmanager
    def reservation(self, count: int) -> Iterator[None]:
        """Keep room for samples from before they are decoded until they are answered.

        Raises:
            QueueFull: there is no room for them.
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
        job = _Job(rows, np.empty(len(rows), np.int64))
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
            for job, rows, place in parts:
                buffer[place] = job.rows[rows]
            used = parts[-1][2].stop
            buffer[used:] = 0
            self.batches, self.rows = self.batches + 1, self.rows + used
            self._answer(parts, buffer)

    def _answer(self, parts: list[_Part], buffer: Rows) -> None:
        try:
            labels = self._labeller.label(buffer)
        except Exception as error:  # the requests in this batch fail; the service goes on
            for job, _, _ in parts:
                with self._changed:
                    if job in self._jobs:
                        self._jobs.remove(job)
                job.future.set_exception(error)
            return
        for job, rows, place in parts:
            job.labels[rows] = labels[place]
            if rows.stop == len(job.rows):
                job.future.set_result(job.labels)

    def _next_parts(self, size: int) -> list[_Part]:
        """Wait for a batch, and take its parts from the queue; none when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            while self._jobs and not self._stopping:
                waiting = sum(len(job.rows) - job.begun for job in self._jobs)
                patience = self._jobs[0].since + self._max_wait - time.monotonic()
                if waiting >= size or patience <= 0:
                    break
                self._changed.wait(patience)
            parts: list[_Part] = []
            used = 0
            while self._jobs and used < size:
                job = self._jobs[0]
                count = min(size - used, len(job.rows) - job.begun)
                parts.append((job, slice(job.begun, job.begun + count), slice(used, used + count)))
                used, job.begun = used + count, job.begun + count
                if job.begun == len(job.rows):
                    self._jobs.popleft()
            return parts
