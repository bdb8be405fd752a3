"""Puts the samples of several requests together into full batches for the model."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from ucds.serving.labeller import Labeller, Labels, Means, Rows
from ucds.serving.shares import Owner, Rotation


class Stopped(Exception):  # noqa: N818  (the state of the batcher, not a fault)
    """The batcher takes no more samples."""


@dataclass(eq=False)
class _Job:
    """The samples of one request on their way through the model; `begun` rows are in batches already."""

    rows: Rows
    labels: Labels
    mean: Means | None
    future: Future[Labels] = field(default_factory=Future)
    begun: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def wanted(self) -> bool:
        """Whether rows of it are still to be labelled."""
        return self.begun < len(self.rows) and not self.future.cancelled()

    def begin(self) -> bool:
        """Return whether it may go on; from its first batch on it cannot be cancelled."""
        return self.wanted and (self.begun > 0 or self.future.set_running_or_notify_cancel())


_Part = tuple[_Job, slice, slice]
"""A request, rows of it, and the place of these rows in a batch."""


class Batcher:
    """One thread that runs the model on batches, which the waiting owners fill in equal parts.

    A batch that is not full waits a moment for further requests; then it is filled up with zeros.
    A request of more samples than its part of a batch is split. One that is cancelled before its first batch
    is left out.

    Args:
        labeller: model.
        max_wait: seconds that a batch may wait to be filled.
    """

    def __init__(self, labeller: Labeller, max_wait: float) -> None:
        self._labeller, self._max_wait = labeller, max_wait
        self._jobs: Rotation[_Job] = Rotation()
        self._changed = threading.Condition()
        self._stopping = False
        self.batches = self.rows = 0
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the model still answers."""
        return self._thread.is_alive() and not self._stopping

    def submit(self, rows: Rows, owner: Owner, mean: Means | None = None) -> Future[Labels]:
        """Label ``(n, *row_shape)`` rows of an owner.

        Args:
            rows: samples.
            owner: owner, who gets a fair part of each batch.
            mean: mean from which the samples are seen; the model's own if ``None``.

        Raises:
            Stopped: the batcher was closed.
        """
        job = _Job(rows, np.empty(len(rows), np.int64), mean)
        with self._changed:
            if self._stopping:
                raise Stopped
            self._jobs.add(owner, job)
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
            means = self._means(parts)
            labels = self._labeller.label(buffer) if means is None else self._labeller.label(buffer, means)
        except Exception as error:  # the requests in this batch fail; the service goes on
            for job in dict.fromkeys(job for job, _, _ in parts):
                job.begun = len(job.rows)  # the rest of it is left out
                job.future.set_exception(error)
            return
        for job, rows, place in parts:
            job.labels[rows] = labels[place]
            if rows.stop == len(job.rows):
                job.future.set_result(job.labels)

    def _means(self, parts: list[_Part]) -> Means | None:
        """Return the mean of each row of a batch; ``None`` if the model knows its own only."""
        width = self._labeller.mean_width
        if width is None:
            return None
        means = np.full((self._labeller.batch_size, width), np.nan, np.float32)
        for job, _, place in parts:
            if job.mean is not None:
                means[place] = job.mean
        return means

    def _next_parts(self, size: int) -> list[_Part]:
        """Wait for a batch, and take its parts from the queues; none when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting() or self._stopping)
            while (waiting := self._waiting()) and not self._stopping:
                patience = min(job.since for job in waiting) + self._max_wait - time.monotonic()
                if sum(len(job.rows) - job.begun for job in waiting) >= size or patience <= 0:
                    break
                self._changed.wait(patience)
            parts: list[_Part] = []
            used = 0
            while used < size and (turn := self._jobs.turn()):
                queue = turn[1]
                job, most = queue[0], -(-(size - used) // len(self._jobs))
                if job.begin():
                    count = min(most, len(job.rows) - job.begun)
                    parts.append((job, slice(job.begun, job.begun + count), slice(used, used + count)))
                    used, job.begun = used + count, job.begun + count
                if not job.wanted:
                    queue.popleft()
            return parts

    def _waiting(self) -> list[_Job]:
        return [job for queue in self._jobs.values() for job in queue if job.wanted]
