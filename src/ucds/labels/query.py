"""Asks a service about many samples, in parallel, and survives being killed at any moment."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.errors import InputError, UcdsWarning
from ucds.labels.client import InvalidSamplesError, LabelClient, OverBudgetError
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.journal import Journal, journal_path
from ucds.labels.questions import MOST_OVERHEAD, Questions, check_size
from ucds.labels.wire import LabelAnswer, ServiceInfo

Progress = Callable[[int, int], None]
Selector = Callable[[Mapping[bytes, int]], Sequence[int]]
"""Says which positions to ask about, in order, given the labels known so far by content key."""

_BATCH_SIZE = 64
"""Samples in a request unless told otherwise: a full batch for a model, and little to lose to a crash."""

_WARNINGS_SHOWN = 20


def query_labels(
    client: LabelClient,
    questions: Questions,
    out: Path,
    *,
    choose: Selector | None = None,
    progress: Progress | None = None,
) -> ClusterLabels:
    """Ask for the label of every sample, or of some, and write them to a label file.

    Labels are on disk in a journal beside ``out`` before the next batch is asked, so the same call
    after a crash goes on where it was. Equal contents are asked about once. Samples that cannot be used
    get no label.

    Args:
        client: of the service.
        questions: the samples.
        out: label file to write; the journal is removed when it is complete.
        choose: which samples to ask about; all if ``None``.
        progress: called as ``progress(done, total)`` with numbers of samples.

    Raises:
        UserError: ``out`` exists, the service cannot answer, its model is not the one that gave the
            labels in the journal, or the budget is used up. What was received stays in the journal.

    Warns:
        UcdsWarning: for each sample that cannot be used (20 at most are named) and in summary.
    """
    if out.exists() and not journal_path(out).exists():
        raise InputError(f"{out} exists already: delete it to ask again, or choose another --out")
    info = client.info()
    questions.check_accepted(info)
    place = journal_path(out)
    with Journal(place, url=client.url, model=info.model, n_clusters=info.n_clusters) as journal:
        positions = range(len(questions.ids)) if choose is None else choose(journal.labels)
        asking = _Asking(client, info, questions, journal, positions, progress)
        asking.run()
        labels = asking.collect()
        labels.save(out)
        journal.remove()
    return labels


@dataclass(frozen=True)
class _Item:
    position: int
    key: bytes
    content: bytes


_Batch = list[_Item]


class _Asking:
    """One pass over the samples. Only requests run in other threads; all state belongs to this one."""

    def __init__(
        self,
        client: LabelClient,
        info: ServiceInfo,
        questions: Questions,
        journal: Journal,
        positions: Sequence[int],
        progress: Progress | None,
    ) -> None:
        self._client, self._info, self._questions, self._journal = client, info, questions, journal
        self._positions, self._progress = positions, progress
        self._batches = self._read_batches()
        self._again: deque[_Batch] = deque()
        self._keys: dict[int, bytes] = {}
        self._unusable: dict[int, str] = {}
        self._refused: dict[bytes, str] = {}
        self._exhausted = False
        self._done = 0

    def run(self) -> None:
        """Ask until every sample has an answer.

        Raises:
            UserError: the service cannot go on answering.
        """
        running: dict[Future[LabelAnswer], _Batch] = {}
        with ThreadPoolExecutor(self._client.parallel) as pool:
            try:
                while True:
                    for batch in self._next(self._client.parallel - len(running)):
                        running[pool.submit(self._ask, batch)] = batch
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        self._take(future, running.pop(future))
            except BaseException:
                self._client.stop()
                self._rescue(running)
                raise
        if self._exhausted:
            raise InputError(self._budget_message())

    def collect(self) -> ClusterLabels:
        """The labels in the order of the samples.

        Raises:
            UserError: there is none.
        """
        for position, key in self._keys.items():
            if key in self._refused:
                self._unusable[position] = self._refused[key]
        ids, known = self._questions.ids, self._journal.labels
        reasons = {ids[p]: reason for p, reason in sorted(self._unusable.items())}
        _warn_of_unusable(reasons, len(self._positions))
        positions = sorted(position for position, key in self._keys.items() if key in known)
        if not positions:
            raise InputError("the service can use none of the samples")
        labels = np.array([known[self._keys[p]] for p in positions], dtype=np.int64)
        return ClusterLabels(
            tuple(ids[p] for p in positions), labels, self._info.n_clusters, self._info.model
        )

    def _next(self, count: int) -> list[_Batch]:
        batches: list[_Batch] = []
        while len(batches) < count and not self._exhausted:
            batch = self._again.popleft() if self._again else next(self._batches, None)
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _read_batches(self) -> Iterator[_Batch]:
        most = min(self._client.batch_size or _BATCH_SIZE, self._info.max_batch)
        room = self._info.max_request_bytes - MOST_OVERHEAD
        batch: _Batch = []
        size = 0
        for item in self._read_items():
            more = len(item.content) + MOST_OVERHEAD
            if batch and (len(batch) == most or size + more > room):
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += more
        if batch:
            yield batch

    def _read_items(self) -> Iterator[_Item]:
        """Samples whose content has not been asked about yet, read only when their turn comes."""
        seen = set(self._journal.labels)
        for position in self._positions:
            name = self._questions.ids[position]
            try:
                content = self._questions.read(position)
                check_size(content, name, self._info)
            except UnusableImageError as error:
                self._unusable[position] = error.reason
                self._advance(1)
                continue
            key = self._keys[position] = content_key(content)
            if key in seen:
                self._advance(1)
                continue
            seen.add(key)
            yield _Item(position, key, content)

    def _ask(self, batch: _Batch) -> LabelAnswer:
        return self._client.ask(self._questions.body([item.content for item in batch]), len(batch))

    def _take(self, future: Future[LabelAnswer], batch: _Batch) -> None:
        try:
            answer = future.result()
        except InvalidSamplesError as error:
            self._refused |= {batch[i].key: reason for i, reason in error.reasons.items()}
            self._advance(len(error.reasons))
            rest = [item for i, item in enumerate(batch) if i not in error.reasons]
            if rest:
                self._again.append(rest)
        except OverBudgetError:
            # A part of the batch may still be covered, or be paid for already.
            middle = len(batch) // 2
            self._exhausted |= middle == 0
            if middle:
                self._again.extendleft([batch[middle:], batch[:middle]])
        else:
            self._keep(answer, batch)

    def _keep(self, answer: LabelAnswer, batch: _Batch) -> None:
        if (answer.model, answer.n_clusters) != (self._info.model, self._info.n_clusters):
            raise InputError(
                f"{self._client.url} changed from model {self._info.model!r} to {answer.model!r} on the way: "
                f"labels of two models do not mix. Those of the first are kept in {self._journal.path}; "
                "ask the provider for that model again, or delete the file to begin anew"
            )
        self._journal.add({item.key: label for item, label in zip(batch, answer.labels, strict=True)})
        self._advance(len(batch))

    def _rescue(self, running: dict[Future[LabelAnswer], _Batch]) -> None:
        """Keep the answers to what was under way when something went wrong: they are paid for."""
        for future in wait(running).done:
            if future.exception() is None:
                answer = future.result()
                if (answer.model, answer.n_clusters) == (self._info.model, self._info.n_clusters):
                    self._keep(answer, running[future])

    def _advance(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, len(self._positions))

    def _budget_message(self) -> str:
        known = len(self._journal.labels)
        text = (
            f"the budget of this key is used up: {known:,} labels for {len(self._positions):,} samples are "
            f"kept in {self._journal.path}. Ask the provider for a larger budget and run the same command "
            "again"
        )
        return f"{text}, or go on with what there is by --max-queries {known}" if known else text


def _warn_of_unusable(reasons: Mapping[str, str], total: int) -> None:
    for name, reason in list(reasons.items())[:_WARNINGS_SHOWN]:
        warnings.warn(f"{name}: {reason}; skipped", UcdsWarning, stacklevel=4)
    if reasons:
        message = f"{len(reasons):,} of {total:,} samples have no label because they cannot be used"
        warnings.warn(message, UcdsWarning, stacklevel=4)
