"""The service's model, which gives one integer for each row, and the queue before it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ucds.errors import InputError
from ucds.heads import mean_direction
from ucds.math.arrays import FloatArray
from ucds.serving.problems import stopping
from ucds.training.inputs import view_for
from ucds.training.model_file import StoredModel, arrays_digest
from ucds.training.options import Compute

Rows = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
Means = npt.NDArray[np.float32]
USUAL_BATCH = 8
_LONGEST_WAIT = 0.005  # seconds that a batch may wait to be filled


class ModelLabeller:
    """A source model that answers in batches of one fixed size, 8 by default.

    In batches of different sizes, the result of a row may differ in its last bits, so that a near tie would
    have two answers. In batches of one size, the result is the same to the bit, whatever the other rows are.
    """

    def __init__(
        self, stored: StoredModel, compute: Compute | None = None, batch_size: int = USUAL_BATCH
    ) -> None:
        if batch_size < 1:
            raise InputError(f"the model must take at least one sample at a time, not {batch_size}")
        spec, compute = stored.card.encoder, compute or Compute()
        self.name = stored.card.name
        self.n_clusters = stored.card.n_clusters
        self.privacy = stored.card.privacy
        self.columns = spec.columns
        # The ledger keeps the answers of models apart by it.
        self.digest = arrays_digest(stored.arrays).decode()[:32]
        self.mean_width = spec.width if stored.card.recentres else None  # of a mean to see samples from
        self._view, self._head = view_for(spec), stored.head
        self._encoder = compute.place(stored.encoder)
        self.row_shape: tuple[int, ...] = (spec.takes,)
        self.dtype: npt.DTypeLike = np.float32
        if spec.input_size is not None:
            self.row_shape, self.dtype = (3, spec.stored_size, spec.stored_size), np.uint8
        self.batch_size = batch_size
        self.label(np.zeros((self.batch_size, *self.row_shape), self.dtype))  # what fails, fails at the start

    def label(self, rows: Rows, means: Means | None = None) -> Labels:
        """Label ``(batch_size, *row_shape)`` rows: ``(batch_size,)`` in ``[0, n_clusters)``.

        ``means`` holds the ``(batch_size, mean_width)`` mean that is subtracted from each row; NaN stands for
        the model's own mean.
        """
        # The same steps as where labels are made offline, so that a tie is decided alike.
        features = self._head.features(self._features(rows), means)
        return np.asarray(self._head.probabilities(features).argmax(1))

    def mean(self, rows: Rows) -> Means:
        """Compute the mean ``(mean_width,)`` of the unit features of any number of rows."""
        return mean_direction(self._blocks(rows))

    def _blocks(self, rows: Rows) -> Iterator[FloatArray]:
        """Compute the encoder's features of rows in batches, the last one filled up with zeros."""
        buffer = np.zeros((self.batch_size, *self.row_shape), self.dtype)
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            buffer[: len(part)] = part
            yield self._features(buffer)[: len(part)]

    def _features(self, rows: Rows) -> FloatArray:
        return self._encoder(self._view.test(rows))


@dataclass(eq=False)
class _Job:
    """The samples of one request on their way through the model."""

    rows: Rows
    mean: Means | None
    labels: Labels
    missing: int
    future: Future[Labels] = field(default_factory=Future)

    def fail(self, error: Exception) -> None:
        """Pass an error to the waiting request, once."""
        if not self.future.done():
            self.future.set_exception(error)


_Sample = tuple[_Job, int]


class Batcher:
    """One thread that runs the model on batches, filled with samples of the waiting keys in turn.

    So a key with a thousand samples delays another key by one batch. A batch that is not full waits a moment
    for further requests, and is then filled up with zeros. Submitted samples are computed even if nobody
    waits for them any more.
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
        """Label ``(n, *row_shape)`` rows of a key after subtracting a mean; the model's own if ``None``."""
        job = _Job(rows, mean, np.empty(len(rows), np.int64), len(rows))
        with self._changed:
            if self._stopping:
                raise stopping()
            self._queues.setdefault(key, deque()).extend((job, place) for place in range(len(rows)))
            self._waiting += len(rows)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """Stop the thread after its present batch; requests that wait for labels are refused."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        for queue in self._queues.values():
            for job, _ in queue:
                job.fail(stopping())

    def _work(self) -> None:
        """Label batches until the end; if one fails, so do the requests in it, and the service goes on."""
        size = self._labeller.batch_size
        buffer = np.zeros((size, *self._labeller.row_shape), self._labeller.dtype)
        while samples := self._next_samples(size):
            for place, (job, row) in enumerate(samples):
                buffer[place] = job.rows[row]
            buffer[len(samples) :] = 0
            self.batches, self.rows = self.batches + 1, self.rows + len(samples)
            try:
                labels = self._label(samples, buffer)
            except Exception as error:
                for job, _ in samples:
                    job.fail(error)
                continue
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
