"""Asks a service about many samples in parallel; a query killed at any moment can be continued."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.errors import InputError, RefusedError, UserError, shown, warn_of_skipped
from ucds.labels.client import LabelClient, OverBudgetError
from ucds.labels.cluster_labels import ClusterLabels, marks_of
from ucds.labels.journal import Journal, KeptReceipt, journal_path
from ucds.labels.questions import MOST_OVERHEAD, Questions
from ucds.labels.wire import Calibration, LabelAnswer, ServiceInfo, digest_of_contents, find_fault

Progress = Callable[[int, int], None]
Selector = Callable[[Container[int]], Sequence[int]]
"""Returns the positions to ask about, from the positions whose labels an earlier call has received."""

_BATCH_SIZE = 64  # samples in a request: a full batch for a model, and little to lose in a crash
_PARALLEL = 4  # requests under way at a time


def query_labels(
    client: LabelClient,
    questions: Questions,
    out: Path,
    *,
    choose: Selector | None = None,
    progress: Progress = lambda done, total: None,
    say: Callable[[str], object] = lambda sentence: None,
) -> ClusterLabels:
    """Ask for the labels of all samples, or of those to ``choose``, and write the label file ``out``.

    Every answer is written, with its receipt, to a journal beside ``out`` as it arrives, so that the same
    call after a crash continues the query. The order is random, so that it reveals nothing of names and
    folders. Equal contents are asked about once. Samples that cannot be used get no label. ``progress``
    receives numbers of samples; ``say`` receives messages about the key's budget and calibration.

    Whatever ends a query, what was received before stays in the journal.
    """
    if out.exists():
        raise InputError(f"{out} exists already: delete it to ask again, or choose another `out`")
    info = client.info()
    questions = questions.for_service(info)
    balance = info.balance
    say(f"{balance.remaining:,} of {balance.budget:,} labels are left in the budget of this key")
    info = _settle_calibration(client, questions, info, say)
    with Journal(journal_path(out), url=client.url, info=info) as journal:
        positions: Sequence[int] = range(len(questions.ids))
        if choose is not None:
            asked = _usable(questions, positions if journal.labels else ())
            positions = choose({place for place, content in asked if content_key(content) in journal.labels})
        # A keyed hash, so that nobody without the key can tell the place of a sample from its turn.
        positions = sorted(positions, key=lambda place: content_key(journal.order + place.to_bytes(8)))
        if not client.overdraw:
            _refuse_overdraft(balance.remaining, questions, positions, journal.labels)
        under_way = _Query(client, info, questions, journal, positions, progress)
        under_way.run()
        labels = under_way.collect()
        labels.save(out)
    return labels


def _settle_calibration(
    client: LabelClient, questions: Questions, info: ServiceInfo, say: Callable[[str], object]
) -> ServiceInfo:
    """Calibrate the client's key, if the client wants it and the key is not calibrated yet."""
    fewest, n = info.fewest_to_calibrate, len(questions.ids)
    if info.calibration is not None:
        say(f"the key was calibrated with {info.calibration.samples:,} samples")
    elif fewest is None:
        if client.calibrate:
            say(f"model {info.provider!r} treats all samples alike, so the key is not calibrated")
    elif client.calibrate:
        found = _calibrate(client, questions, info, fewest)
        say(f"the key is calibrated with {found.samples:,} of your samples")
        return info.model_copy(update={"calibration": found})
    elif n >= fewest and info.balance.used == 0:
        say(
            "if these samples are of one kind, `calibrate=True` may improve their labels "
            "(see docs/serving.md)"
        )
    return info


def _calibrate(client: LabelClient, questions: Questions, info: ServiceInfo, fewest: int) -> Calibration:
    contents = list(_draw_contents(questions, info))
    if len(contents) < fewest:
        raise InputError(
            f"a calibration needs {fewest} different samples, but only {len(contents)} can be used: ask "
            "without `calibrate`"
        )
    answer = client.send_calibration(questions.body(contents), len(contents))
    left_out = {sample.position for sample in answer.unusable}
    used = [content_key(content) for position, content in enumerate(contents) if position not in left_out]
    if answer.calibration.digest != digest_of_contents(used):
        raise RefusedError(f"{client.url} calibrated the key with samples other than these")
    return answer.calibration


def _draw_contents(questions: Questions, info: ServiceInfo) -> Iterator[bytes]:
    """Read different samples in a secret order until a request is full."""
    room, seen = info.max_request_bytes - MOST_OVERHEAD, set[bytes]()
    count = len(questions.ids)
    for _, content in _usable(questions, secrets.SystemRandom().sample(range(count), count)):
        if content in seen:
            continue
        room -= len(content) + MOST_OVERHEAD
        if room < 0 or len(seen) == info.max_batch:
            return
        seen.add(content)
        yield content


def _refuse_overdraft(
    remaining: int, questions: Questions, positions: Sequence[int], known: Container[bytes]
) -> None:
    """Make sure that the rest of a budget covers a query; contents in ``known`` are free."""
    if len(positions) <= remaining:
        return
    keys = {content_key(content) for _, content in _usable(questions, positions)}
    missing = sum(key not in known for key in keys)
    if missing > remaining:
        fewer = f"ask about fewer by `max_queries={remaining}`, or " if remaining else ""
        raise RefusedError(
            f"{remaining:,} labels are left in the budget of this key, but {missing:,} samples have no label "
            f"yet (those that this key asked about before are free): {fewer}use up the rest with "
            "`overdraw=True`"
        )


def _usable(questions: Questions, positions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Read samples, and yield the position and the sent content of each one that can be used."""
    for position in positions:
        with suppress(UnusableImageError):
            yield position, questions.read(position).content


class _Item(NamedTuple):
    key: bytes
    content: bytes


_Batch = list[_Item]


@dataclass
class _Query:
    """One pass over the samples. Requests run in other threads; this thread alone changes the state."""

    client: LabelClient
    info: ServiceInfo
    questions: Questions
    journal: Journal
    positions: Sequence[int]
    progress: Progress
    again: deque[_Batch] = field(default_factory=deque)
    keys: dict[int, bytes] = field(default_factory=dict)  # of what was sent
    own_keys: dict[int, bytes] = field(default_factory=dict)
    unusable: dict[int, str] = field(default_factory=dict)
    refused: dict[bytes, str] = field(default_factory=dict)
    exhausted: bool = False
    done: int = 0

    def run(self) -> None:
        """Ask until every sample has an answer."""
        batches = self._read_batches()
        running: dict[Future[LabelAnswer], _Batch] = {}
        with ThreadPoolExecutor(_PARALLEL) as pool:
            try:
                while True:
                    while len(running) < _PARALLEL and not self.exhausted:
                        batch = self.again.popleft() if self.again else next(batches, None)
                        if batch is None:
                            break
                        body = self.questions.body([item.content for item in batch])
                        running[pool.submit(self.client.ask, body, len(batch))] = batch
                    if not running:
                        break
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        self._finish(future, running)
            except BaseException:  # Ctrl-C too: the answers under way are paid for
                self.client.stop()
                self._rescue(running)
                raise
        if self.exhausted:
            raise RefusedError(self._budget_message())

    def collect(self) -> ClusterLabels:
        """Gather the labels in the order of the samples."""
        self.unusable |= {p: self.refused[key] for p, key in self.keys.items() if key in self.refused}
        ids, known = self.questions.ids, self.journal.labels
        reasons = [f"{ids[p]}: {reason}" for p, reason in sorted(self.unusable.items())]
        count = f"{len(reasons):,} of {len(self.positions):,} samples"
        warn_of_skipped(reasons, f"{count} have no label because they are unusable or refused")
        positions = sorted(position for position, key in self.keys.items() if key in known)
        if not positions:
            raise InputError("the service can use none of the samples")
        labels = np.array([known[self.keys[p]] for p in positions], dtype=np.int64)
        names = tuple(ids[p] for p in positions)
        contents = marks_of([self.own_keys[p] for p in positions])
        return ClusterLabels(
            names, labels, self.info.n_clusters, self.info.provider, contents, self.info.columns
        )

    def _read_batches(self) -> Iterator[_Batch]:
        most = min(_BATCH_SIZE, self.info.max_batch)
        room = self.info.max_request_bytes - MOST_OVERHEAD
        batch, size = list[_Item](), 0
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
        """Read the samples whose content is still to be asked about, each when its turn comes."""
        seen = set(self.journal.labels)
        for position in self.positions:
            try:
                content, self.own_keys[position] = self.questions.read(position)
            except UnusableImageError as error:
                self.unusable[position] = error.reason
                self._advance(1)
                continue
            key = self.keys[position] = content_key(content)
            if key in seen:
                self._advance(1)
                continue
            seen.add(key)
            yield _Item(key, content)

    def _finish(self, future: Future[LabelAnswer], running: dict[Future[LabelAnswer], _Batch]) -> None:
        """Take the answer to a request, and only then forget the request: so Ctrl-C loses nothing."""
        batch = running[future]
        try:
            self._keep(future.result(), batch)
        except OverBudgetError:  # a part of the batch may still be covered, or be paid for already
            middle = len(batch) // 2
            self.exhausted |= middle == 0
            if middle:
                self.again.extendleft([batch[middle:], batch[:middle]])
        except UserError:
            del running[future]
            raise
        del running[future]

    def _keep(self, answer: LabelAnswer, batch: _Batch) -> None:
        if not self._is_of_the_same_model(answer):
            raise RefusedError(
                f"{self.client.url} changed from model {self.info.provider!r} to {answer.provider!r} on the "
                f"way: labels of two models do not mix. Those of the first are kept in {self.journal.path}; "
                "ask the provider for that model again, or delete the file to begin anew"
            )
        self.refused |= {batch[bad.position].key: shown(bad.reason) for bad in answer.unusable}
        answered = zip(batch, answer.labels, strict=True)
        labels = {item.key: label for item, label in answered if label is not None}
        if answer.receipt is not None:
            signer, model = self.info.signer, self.info.model_digest
            if fault := find_fault(answer.receipt, labels, signer=signer, model_digest=model):
                raise RefusedError(f"{self.client.url} cannot be trusted: {fault}; ask the provider")
            hexadecimal = {key.hex(): label for key, label in labels.items()}
            self.journal.add(KeptReceipt(receipt=answer.receipt, labels=hexadecimal))
        self._advance(len(batch))

    def _rescue(self, running: dict[Future[LabelAnswer], _Batch]) -> None:
        """Keep the answers to requests that were under way when something failed: they are paid for."""
        for future in wait(running).done:
            if future.exception() is None and self._is_of_the_same_model(future.result()):
                # Labels that find no room wait in the journal until it is closed; the next ones come to them.
                # An answer that is refused keeps none of the others out, nor hides what went wrong first.
                with suppress(UserError):
                    self._keep(future.result(), running[future])

    def _is_of_the_same_model(self, answer: LabelAnswer) -> bool:
        asked, info = (answer.provider, answer.model_digest, answer.n_clusters), self.info
        return asked == (info.provider, info.model_digest, info.n_clusters)

    def _advance(self, count: int) -> None:
        self.done += count
        self.progress(self.done, len(self.positions))

    def _budget_message(self) -> str:
        known = len(self.journal.labels)
        text = (
            f"the budget of this key is used up: {known:,} labels for {len(self.positions):,} samples are "
            f"kept in {self.journal.path}. Ask the provider for a larger budget and run the same command "
            "again"
        )
        return f"{text}, or go on with what there is by `max_queries={known}`" if known else text
