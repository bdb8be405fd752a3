"""The way of one request from its key to its answer."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from starlette.requests import Request

from ucds.labels.wire import NPY_TYPE, Accepts, Budget, LabelAnswer, ServiceInfo
from ucds.serving.batcher import Batcher, QueueFull, Stopped
from ucds.serving.decoding import ImageDecoder, content_keys, decode_embeddings
from ucds.serving.labeller import Labeller, Rows
from ucds.serving.ledger import KeyRecord, KeyRevoked, Ledger, LedgerAway, OverBudget
from ucds.serving.metrics import Metrics
from ucds.serving.problems import Refusal
from ucds.serving.rate import RateLimiter
from ucds.serving.settings import Limits
from ucds.serving.uploads import ByteGate, read_body, read_images

logger = logging.getLogger("ucds.serving")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Samples = list[bytes] | npt.NDArray[np.float32]

MULTIPART = "multipart/form-data"
UNMETERED = Budget(limit=None, used=0, remaining=None)


class Answering:
    """Everything the service holds while it runs.

    Args:
        labeller: the model.
        ledger: of keys and answers; ``None`` answers everybody, unmetered.
        limits: of requests.
        open_without_keys: answer everybody, unmetered, as long as the ledger never held a key.
    """

    def __init__(
        self, labeller: Labeller, ledger: Ledger | None, limits: Limits, *, open_without_keys: bool
    ) -> None:
        self.labeller, self.ledger, self.limits = labeller, ledger, limits
        self.metrics = Metrics()
        self.batcher = Batcher(labeller, limits.max_queue, limits.max_wait_seconds)
        self.metrics.watch(self.batcher)
        self.stopping = False
        self._open = open_without_keys
        self._decoder = self._make_decoder()
        self._rates = RateLimiter()
        self._bytes = ByteGate(limits.max_body_bytes)
        self._in_work = 0
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="ledger-read")
        # One writer: the others of this process wait here, and do not spin on the database's lock.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")

    def _make_decoder(self) -> ImageDecoder | None:
        if self.accepts == "embeddings":
            return None
        threads = self.limits.decode_threads or os.cpu_count() or 1
        return ImageDecoder(self.labeller.row_shape[-1], self.limits.max_image_pixels, threads)

    @property
    def accepts(self) -> Accepts:
        """What the model takes."""
        return "images" if len(self.labeller.row_shape) == 3 else "embeddings"

    def close(self) -> None:
        """Finish what was accepted, and let go of everything."""
        self.stopping = True
        self.batcher.close()
        if self._decoder is not None:
            self._decoder.close()
        self._readers.shutdown()
        self._writer.shutdown()

    def info(self) -> ServiceInfo:
        """What a client must know."""
        return ServiceInfo(
            model=self.labeller.name,
            n_clusters=self.labeller.n_clusters,
            accepts=self.accepts,
            width=self.labeller.row_shape[0] if self.accepts == "embeddings" else None,
            max_batch=self.limits.max_batch,
            max_image_bytes=self.limits.max_image_bytes,
            max_image_pixels=self.limits.max_image_pixels,
            max_request_bytes=self.limits.max_request_bytes,
        )

    async def identify(self, request: Request) -> KeyRecord | None:
        """Whose request it is; ``None`` where everybody is answered.

        Raises:
            Refusal: 401 without a valid key, 403 with a revoked one.
        """
        if self.ledger is None:
            return None
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            if self._open and not await self._read(self.ledger.has_keys):
                return None
            raise Refusal("no-key", "Send your key in the header 'Authorization: Bearer KEY'.")
        record = await self._read(self.ledger.find_key, key.strip())
        if record is None:
            if self._open and not await self._read(self.ledger.has_keys):
                return None
            raise Refusal("unknown-key", "This service does not know the key; check it with its owner.")
        if record.revoked is not None:
            raise _revoked()
        return record

    async def answer(self, request: Request) -> LabelAnswer:
        """The labels of a request's samples.

        Raises:
            Refusal: there is no answer; nothing is charged.
        """
        key = await self.identify(request)
        self._admit(key)
        with self._place():
            self._check_type(request)
            with self._bytes.entry() as take:
                samples = await self._receive(request, take)
                if key is not None:
                    self._rates.pay(key.number, key.rate, len(samples) - 1)
                contents = content_keys(samples)
                labels, budget = await self._settle(key, samples, contents)
        self.metrics.answered.inc(len(contents))
        return LabelAnswer(
            labels=[labels[content] for content in contents],
            n_clusters=self.labeller.n_clusters,
            model=self.labeller.name,
            budget=budget,
        )

    async def check_ready(self) -> str | None:
        """Why the service cannot answer now, or ``None``."""
        if self.stopping:
            return "The service is stopping."
        if not self.batcher.alive:
            return "The model does not answer."
        try:
            if self.ledger is not None:
                await self._read(self.ledger.has_keys)
        except Refusal as refusal:
            return refusal.detail
        return None

    def _admit(self, key: KeyRecord | None) -> None:
        seconds = None if key is None else self._rates.admit(key.number, key.rate)
        if seconds is not None:
            raise Refusal("over-rate", "The key asks faster than it may; wait.", retry_after=seconds)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """One of the places for requests in work."""
        if self.stopping:
            raise _stopping()
        if self._in_work >= self.limits.max_requests:
            raise _busy()
        self._in_work += 1
        try:
            yield
        finally:
            self._in_work -= 1

    def _check_type(self, request: Request) -> None:
        found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = MULTIPART if self.accepts == "images" else NPY_TYPE
        if found != wanted:
            detail = f"This model takes {self.accepts}; send them as {wanted}."
            raise Refusal("wrong-type", detail)

    async def _receive(self, request: Request, take: Callable[[int], None]) -> Samples:
        pieces = read_body(request, self.limits, take)
        if self.accepts == "images":
            return await read_images(request, self.limits, pieces)
        data = b"".join([piece async for piece in pieces])
        return decode_embeddings(data, self.labeller.row_shape[0], self.limits)

    async def _settle(
        self, key: KeyRecord | None, samples: Samples, contents: list[bytes]
    ) -> tuple[dict[bytes, int], Budget]:
        """Look up, compute and charge."""
        if key is None or self.ledger is None:
            return await self._compute(samples, contents, {}), UNMETERED
        try:
            model = self.labeller.digest
            known = await self._read(self.ledger.known, key, model, contents)
            computed = await self._compute(samples, contents, known)
            charge = partial(self.ledger.charge, key, model, contents, known | computed)
            return await self._guard(self._writer, charge)
        except OverBudget as error:
            raise _over_budget(error) from None
        except KeyRevoked:
            raise _revoked() from None

    async def _compute(
        self, samples: Samples, contents: list[bytes], known: dict[bytes, int]
    ) -> dict[bytes, int]:
        """Labels of what is not known, each content once."""
        first: dict[bytes, int] = {}
        for position, content in enumerate(contents):
            if content not in known:
                first.setdefault(content, position)
        if not first:
            return {}
        positions = list(first.values())
        try:
            with self.batcher.reservation(len(positions)):
                rows = await self._rows(samples, positions)
                labels = await asyncio.wrap_future(self.batcher.submit(rows))
        except QueueFull:
            raise _busy() from None
        except Stopped:
            raise _stopping() from None
        self.metrics.computed.inc(len(positions))
        return dict(zip(first, labels.tolist(), strict=True))

    async def _rows(self, samples: Samples, positions: list[int]) -> Rows:
        if not isinstance(samples, list):
            return samples[positions]
        assert self._decoder is not None
        files = [samples[position] for position in positions]
        return await asyncio.to_thread(self._decoder.decode, files, positions)

    async def _read(
        self,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        return await self._guard(self._readers, partial(function, *args, **kwargs))

    async def _guard(self, pool: ThreadPoolExecutor, function: Callable[[], Result]) -> Result:
        """Ask the ledger in a thread of its own."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, function)
        except LedgerAway as error:
            logger.error("the ledger does not answer: %s", error)
            detail = "The ledger cannot be reached, so nothing can be answered; come again."
            raise Refusal("ledger-away", detail, retry_after=5) from None


def render_answer(answer: LabelAnswer) -> bytes:
    """The answer as JSON of a length that depends on nothing but the number of samples.

    Every number is padded with blanks to the width of the largest that could stand in its place, so
    that somebody who sees the encrypted traffic does not learn the labels from its length.
    """
    wide = len(str(answer.n_clusters - 1))
    labels = ",".join(f"{label:>{wide}}" for label in answer.labels)
    budget = answer.budget
    digits = len(str(budget.limit)) if budget.limit is not None else 1
    limit, remaining = (json.dumps(value).rjust(digits) for value in (budget.limit, budget.remaining))
    return (
        f'{{"labels":[{labels}],"n_clusters":{answer.n_clusters},"model":{json.dumps(answer.model)},'
        f'"budget":{{"limit":{limit},"used":{budget.used:>{digits}},"remaining":{remaining}}}}}'
    ).encode()


def _busy() -> Refusal:
    return Refusal("busy", "The service has as much work as it can hold; come again.", retry_after=1)


def _stopping() -> Refusal:
    return Refusal("stopping", "The service is being stopped; come again.", retry_after=5)


def _revoked() -> Refusal:
    return Refusal("revoked-key", "The key was revoked by its owner.")


def _over_budget(error: OverBudget) -> Refusal:
    detail = (
        f"The request holds {error.asked:,} samples not asked before, but the key's budget has "
        f"{error.budget.remaining:,} left; nothing was charged."
    )
    return Refusal("over-budget", detail)
