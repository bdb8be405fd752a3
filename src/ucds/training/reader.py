"""Reads the images of the next step while the current one computes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from torch import Tensor

from ucds.data.batches import DomainBalancedSampler
from ucds.data.samples import IntArray, Samples


class Reader:
    """Gives each step's pooled batch positions and this process's raw rows, one step ahead.

    Args:
        samples: to read from.
        sampler: which positions a step sees; a pure function of the step.
        share: this process's rows of a pooled batch.
        total: steps of the stage; nothing is read past them.
        pin: copy to page-locked memory, from which a CUDA device reads asynchronously.
    """

    def __init__(
        self, samples: Samples, sampler: DomainBalancedSampler, share: slice, total: int, *, pin: bool
    ) -> None:
        self._samples, self._sampler, self._share, self._total, self._pin = (
            samples,
            sampler,
            share,
            total,
            pin,
        )
        self._thread = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[tuple[IntArray, Tensor]]] | None = None

    def __enter__(self) -> Reader:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading ahead."""
        self._thread.shutdown(cancel_futures=True)

    def take(self, step: int) -> tuple[IntArray, Tensor]:
        """Positions ``(n,)`` of the pooled batch of ``step``, and this process's rows of it, raw."""
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
