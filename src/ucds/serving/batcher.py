"""Puts the samples of several requests together into full batches for the model."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from ucds.serving.labeller import Labels, Means, ModelLabeller, Rows

_LONGEST_WAIT = 0.005  # seconds that a batch may wait to be filled


class Stopped(Exception):  # noqa: N818  (the state of the batcher, not a fault)
    """The batcher takes no more samples."""


@dataclass(eq=False)
class _Job:
    """The samples of one request on their way through the model."""

    rows: Rows
    mean: Means | None
    labels: Labels
    missing: int
    future: Future[Labels] = field(default_factory=Future)


_Sample = tuple[_Job, int]


class Batcher:
    """One thread that runs the model on batches, which the waiting keys fill in turn, sample by sample.

    So a key with a thousand samples delays another one by a batch. A batch that is not full waits a moment
    for further requests; then it is filled up with zeros. What was submitted is computed, whoever waits.
    """

    def __init__(self, labeller: ModelLabeller) -> None:
        self._labeller = labeller
        self._queues: OrderedDict[int, deque[_Sample]] = OrderedDict()
        self._waiting = 0
        self._changed = threading.Condition()
        self._stopping = False
        self.batches = self.rows = 0
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the model still answers."""
        return self._thread.is_alive() and not self._stopping

    def submit(self, rows: Rows, key: int, mean: Means | None = None) -> Future[Labels]:
        """Label ``(n, *row_shape)`` rows of a key, seen from a mean; from the model's own if ``None``."""
        job = _Job(rows, mean, np.empty(len(rows), np.int64), len(rows))
        with self._changed:
            if self._stopping:
                raise Stopped
            self._queues.setdefault(key, deque()).extend((job, place) for place in range(len(rows)))
            self._waiting += len(rows)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Stop the thread after its present batch; who waits for labels gets :class:`Stopped`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        for job in {job: None for queue in self._queues.values() for job, _ in queue}:
            if not job.future.done():
                job.future.set_exception(Stopped())

    def _work(self) -> None:
        size = self._labeller.batch_size
        buffer = np.zeros((size, *self._labeller.row_shape), self._labeller.dtype)
        while samples := self._next_samples(size):
            for place, (job, row) in enumerate(samples):
                buffer[place] = job.rows[row]
            buffer[len(samples) :] = 0
            self.batches, self.rows = self.batches + 1, self.rows + len(samples)
            self._answer(samples, buffer)

    def _answer(self, samples: list[_Sample], buffer: Rows) -> None:
        """Run the model on a batch; if it fails, so do the requests in the batch, and the service goes on."""
        try:
            labels = self._label(samples, buffer)
        except Exception as error:
            for job in {job: None for job, _ in samples}:
                if not job.future.done():
                    job.future.set_exception(error)
            return
        for (job, row), label in zip(samples, labels, strict=False):
            job.labels[row] = label
            job.missing -= 1
            if not job.missing and not job.future.done():
                job.future.set_result(job.labels)

    def _label(self, samples: list[_Sample], buffer: Rows) -> Labels:
        width = self._labeller.mean_width
        if width is None:
            return self._labeller.label(buffer)
        means = np.full((self._labeller.batch_size, width), np.nan, np.float32)  # NaN: the model's own
        for place, (job, _) in enumerate(samples):
            if job.mean is not None:
                means[place] = job.mean
        return self._labeller.label(buffer, means)

    def _next_samples(self, size: int) -> list[_Sample]:
        """Wait for a batch, and take its samples from the queues in turn; none when the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            end = time.monotonic() + _LONGEST_WAIT
            while self._waiting < size and not self._stopping and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._stopping:
                return []
            samples: list[_Sample] = []
            while self._queues and len(samples) < size:
                key, queue = self._queues.popitem(last=False)
                samples.append(queue.popleft())
                if queue:
                    self._queues[key] = queue  # behind the others
            self._waiting -= len(samples)
            return samples
