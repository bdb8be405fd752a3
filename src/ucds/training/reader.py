"""Reads the images of the next step while the current one computes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from ucds.data.batches import DomainBalancedSampler
from ucds.data.samples import Samples
from ucds.math.arrays import IntArray


class Reader:
    """Reads batches, one step ahead in a thread; use it as a context manager.

    Args:
        samples: samples to read from.
        sampler: positions that a step sees; a pure function of the step.
        share: this process's rows of a pooled batch.
        total: number of the step before which reading ahead stops.
        pin: whether to copy batches to page-locked memory, from which a CUDA device reads asynchronously.
    """

    def __init__(
        self, samples: Samples, sampler: DomainBalancedSampler, share: slice, total: int, *, pin: bool
    ) -> None:
        self._samples, self._sampler, self._share = samples, sampler, share
        self._total, self._pin = total, pin
        self._thread = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[tuple[IntArray, Tensor]]] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def take(self, step: int) -> tuple[IntArray, Tensor]:
        """Return the positions ``(n,)`` of a step's pooled batch, and this process's raw rows of it."""
        if self._ahead is not None and self._ahead[0] == step:
            batch = self._ahead[1].result()
        else:
            batch = self._read(step)
        # A batch of vectors is read in less time than it takes to wake a thread.
        if step + 1 < self._total and batch[1].ndim > 2:
            self._ahead = step + 1, self._thread.submit(self._read, step + 1)
        return batch

    def _read(self, step: int) -> tuple[IntArray, Tensor]:
        index = self._sampler.batch(step)
        raw = self._samples.read(index[self._share])
        return index, raw.pin_memory() if self._pin else raw
