"""What happens to a request between its key and its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request

from ucds.data.columns import first_positions
from ucds.labels.calibration import digest_of_contents
from ucds.labels.wire import NPY_TYPE, Accepts, Budget, Calibration, LabelAnswer, Receipt, ServiceInfo
from ucds.serving.accounts import Accounts, AccountsOptions
from ucds.serving.addresses import network_of
from ucds.serving.batcher import Batcher, Stopped
from ucds.serving.calibration import KeyMean
from ucds.serving.decoding import ImageDecoder, content_keys, decode_embeddings
from ucds.serving.front import note_key
from ucds.serving.keys import KeyRecord
from ucds.serving.labeller import Labeller, Rows
from ucds.serving.metrics import Metrics
from ucds.serving.problems import Refusal
from ucds.serving.rate import limit_headers
from ucds.serving.settings import Limits
from ucds.serving.shares import Owner, Price, Share
from ucds.serving.uploads import read_body, read_images
from ucds.training.inference import FEWEST_TO_CENTRE

Result = TypeVar("Result")
Samples = list[bytes] | npt.NDArray[np.float32]

MULTIPART = "multipart/form-data"
UNMETERED = Budget(limit=None, used=0, remaining=None)


@dataclass
class _Question:
    """A request whose samples have arrived.

    Attributes:
        owner: owner of the request.
        key: key that asks; ``None`` where everybody is answered.
        samples: samples of the request.
        contents: content key of each.
        mean: mean from which the samples are seen; ``None`` for the model's own.
        known: labels that the key was given before.
    """

    owner: Owner
    key: KeyRecord | None
    samples: Samples
    contents: list[bytes]
    mean: KeyMean | None = None
    known: Mapping[bytes, int] = field(default_factory=dict)


class Answering:
    """The model, its queue, the ledger and the bounds on requests; `create_app` explains the arguments."""

    def __init__(self, labeller: Labeller, accounts: AccountsOptions | None, limits: Limits) -> None:
        self.labeller, self.limits = labeller, limits
        self.accepts: Accepts = "images" if len(labeller.row_shape) == 3 else "embeddings"
        self.batcher = Batcher(labeller, limits.max_wait_seconds)
        self.queue = Share(limits.max_queue, limits.for_one(limits.max_queue, limits.max_batch), "samples")
        self.metrics = Metrics(self.batcher, self.queue)
        self.accounts: Accounts | None = None
        if accounts is not None:
            self.accounts = Accounts(accounts, self.metrics, limits.failure_seconds)
        self._price = Price(limits.waste_seconds)
        self._decoder: ImageDecoder | None = None
        if self.accepts == "images":
            self._decoder = ImageDecoder(labeller.row_shape[-1], limits, self._price)
        most_bytes = limits.for_one(limits.max_body_bytes, limits.max_request_bytes)
        self._bytes = Share(limits.max_body_bytes, most_bytes, "bytes")
        self._places = Share(limits.max_requests, limits.for_one(limits.max_requests), "requests")
        self._calibrating = asyncio.Lock()

    def close(self) -> None:
        """Answer what was accepted, and stop all threads."""
        self.batcher.close()
        if self._decoder is not None:
            self._decoder.close()
        if self.accounts is not None:
            self.accounts.close()

    @property
    def calibrates(self) -> bool:
        """Whether a key can be calibrated: one request must hold samples enough."""
        return self._sees_keys_apart and self.limits.max_batch >= FEWEST_TO_CENTRE

    @property
    def _sees_keys_apart(self) -> bool:
        """Whether the samples of a key that was calibrated are seen from their own mean."""
        return self.accounts is not None and self.labeller.mean_width is not None

    async def info(self, key: KeyRecord | None) -> ServiceInfo:
        """Return what a client must know to ask, and the budget and the calibration of its key."""
        labeller, limits = self.labeller, self.limits
        mean = await self._find_mean(key)
        return ServiceInfo(
            model=labeller.name,
            model_digest=labeller.digest,
            n_clusters=labeller.n_clusters,
            accepts=self.accepts,
            width=labeller.row_shape[0] if self.accepts == "embeddings" else None,
            max_batch=limits.max_batch,
            max_image_bytes=limits.max_image_bytes,
            max_image_pixels=limits.max_image_pixels,
            max_request_bytes=limits.max_request_bytes,
            signer=None if self.accounts is None else self.accounts.signer,
            budget=None if key is None else key.budget,
            privacy=labeller.privacy,
            fewest_to_calibrate=FEWEST_TO_CENTRE if self.calibrates else None,
            calibration=None if mean is None else mean.told,
        )

    async def identify(
        self, request: Request, shown: HTTPAuthorizationCredentials | None
    ) -> KeyRecord | None:
        """Return the record of the key that a client shows; ``None`` where everybody is answered.

        Raises:
            Refusal: the key is missing or unknown (401), or revoked or over (403).
        """
        if self.accounts is None:
            return None
        key = await self.accounts.identify(request, None if shown is None else shown.credentials)
        note_key(request, key.name)
        return key

    async def answer(
        self, request: Request, shown: HTTPAuthorizationCredentials | None
    ) -> tuple[LabelAnswer, dict[str, str]]:
        """Label the samples of a request; return the answer, and its headers that tell of the key's limits.

        Args:
            request: request with the samples as its body.
            shown: key that the client shows.

        Raises:
            Refusal: the request gets no labels; nothing is charged.
        """
        key = await self.identify(request, shown)
        async with self._take_in(request, key) as (owner, samples):
            contents = await asyncio.to_thread(content_keys, samples)
            question = _Question(owner, key, samples, contents)
            settled = self._settle(question, request.state.request_id)
            answer, headers = await _unless_client_leaves(request, settled)
        self.metrics.answered.inc(len(answer.labels))
        return answer, headers

    async def calibrate(self, request: Request, shown: HTTPAuthorizationCredentials | None) -> Calibration:
        """Fix the mean of a request's samples as the one from which all samples of the key are seen.

        Args:
            request: request with the samples as its body.
            shown: key that the client shows.

        Raises:
            Refusal: the request cannot be answered, or the key cannot be calibrated by these samples.
        """
        key = await self.identify(request, shown)
        assert self.accounts is not None  # otherwise the path is not there
        assert key is not None
        async with self._take_in(request, key) as (owner, samples):
            work = self._calibrate(owner, self.accounts, key, samples)
            return await _unless_client_leaves(request, work)

    async def check_ready(self) -> None:
        """Make sure that the service can answer now.

        Raises:
            Refusal: the model does not answer, or the ledger does not take a write (503).
        """
        if not self.batcher.alive:
            raise Refusal("busy", "The model does not answer.", retry_after=5)
        if self.accounts is not None:
            await self.accounts.check_ready()

    @asynccontextmanager
    async def _take_in(self, request: Request, key: KeyRecord | None) -> AsyncIterator[tuple[Owner, Samples]]:
        """Receive the samples of a request, and hold its places in the service while it is in work."""
        address = "" if request.client is None else request.client.host
        owner: Owner = network_of(address) if key is None else key.number
        if self.accounts is not None and key is not None:
            await self.accounts.admit(key)
        with self._places.entry(owner) as take_places, self._bytes.entry(owner) as take_bytes:
            take_places(1)
            await asyncio.sleep(self._price.wait(owner))
            yield owner, await self._receive(request, take_bytes)

    async def _receive(self, request: Request, take: Callable[[int], None]) -> Samples:
        found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = MULTIPART if self.accepts == "images" else NPY_TYPE
        if found != wanted:
            raise Refusal("wrong-type", f"This model takes {self.accepts}; send them as {wanted}.")
        seconds = self.limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                pieces = read_body(request, self.limits, take)
                if self.accepts == "images":
                    return await read_images(request, self.limits, pieces)
                data = b"".join([piece async for piece in pieces])
        except TimeoutError:
            detail = f"The body did not arrive within {seconds:g} seconds; send fewer samples."
            raise Refusal("too-slow", detail) from None
        return await asyncio.to_thread(decode_embeddings, data, self.labeller.row_shape[0], self.limits)

    async def _settle(self, question: _Question, request: str) -> tuple[LabelAnswer, dict[str, str]]:
        """Look up, compute, charge and sign."""
        key, contents, model = question.key, question.contents, self.labeller.digest
        if key is None or self.accounts is None:
            return self._compose(await self._compute(question), contents, UNMETERED, None), {}
        tokens = await self.accounts.pay(key, len(contents))
        mean = question.mean = await self._find_mean(key)
        known = question.known = await self.accounts.find_known(key, model, contents)
        labels = known | await self._compute(question)
        charge, receipt = await self.accounts.charge(
            key,
            model,
            contents,
            labels,
            request,
            self.labeller.privacy,
            None if mean is None else mean.told.digest,
        )
        answer = self._compose(charge.labels, contents, charge.budget, receipt)
        return answer, limit_headers(charge.budget, key.rate, tokens)

    async def _calibrate(
        self, owner: Owner, accounts: Accounts, key: KeyRecord, samples: Samples
    ) -> Calibration:
        """Compute the mean of the samples, each content once, and keep it; nothing is charged."""
        contents, model = await asyncio.to_thread(content_keys, samples), self.labeller.digest
        first = first_positions(contents).tolist()
        if len(first) < FEWEST_TO_CENTRE:
            detail = f"A calibration needs {FEWEST_TO_CENTRE} different samples, not {len(first)}."
            raise Refusal("not-calibrated", detail)
        await accounts.pay(key, len(samples))
        digest = digest_of_contents(contents)
        found = await accounts.check_open(key, model, digest)
        if found is None:
            with self.queue.entry(owner) as take:
                take(len(first))
                rows = await self._make_rows(owner, samples, first)
                async with self._calibrating:  # beside the model's thread, so not several at a time
                    mean = await asyncio.to_thread(self.labeller.mean, rows)
            told = Calibration(samples=len(first), digest=digest)
            found = await accounts.calibrate(key, model, KeyMean(told, mean))
        return found.told

    async def _find_mean(self, key: KeyRecord | None) -> KeyMean | None:
        if self.accounts is None or key is None or not self._sees_keys_apart:
            return None
        return await self.accounts.find_mean(key, self.labeller.digest)

    def _compose(
        self, labels: dict[bytes, int], contents: list[bytes], budget: Budget, receipt: Receipt | None
    ) -> LabelAnswer:
        return LabelAnswer(
            labels=[labels[content] for content in contents],
            n_clusters=self.labeller.n_clusters,
            model=self.labeller.name,
            model_digest=self.labeller.digest,
            budget=budget,
            receipt=receipt,
        )

    async def _compute(self, question: _Question) -> dict[bytes, int]:
        """Label the samples that are not known, each content once."""
        owner, first = question.owner, dict[bytes, int]()
        for position, content in enumerate(question.contents):
            if content not in question.known:
                first.setdefault(content, position)
        if not first:
            return {}
        try:
            with self.queue.entry(owner) as take:
                take(len(first))
                rows = await self._make_rows(owner, question.samples, list(first.values()))
                mean = None if question.mean is None else question.mean.mean
                labels = await asyncio.wrap_future(self.batcher.submit(rows, owner, mean))
        except Stopped:
            raise Refusal("stopping", "The service is being stopped; come again.", retry_after=5) from None
        self.metrics.computed.inc(len(first))
        return dict(zip(first, labels.tolist(), strict=True))

    async def _make_rows(self, owner: Owner, samples: Samples, positions: list[int]) -> Rows:
        if not isinstance(samples, list):
            return samples[positions]
        assert self._decoder is not None
        files = [samples[position] for position in positions]
        try:
            return await self._decoder.decode(owner, files, positions)
        except Refusal as refusal:
            self.metrics.unusable.inc(len(refusal.invalid or ()))
            raise


async def _unless_client_leaves(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of some work, which is given up when the client closes its connection.

    Raises:
        Refusal: the client has left; nobody will see it.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal("client-left", "The connection was closed before the answer.")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait((working, leaving))


def render_answer(answer: LabelAnswer) -> bytes:
    """Write the answer as JSON of a length that depends only on the number of samples.

    Every number is padded with blanks to the width of the largest that could stand in its place, so
    that the length of the encrypted traffic does not tell the labels.
    """
    wide = len(str(answer.n_clusters - 1))
    labels = ",".join(f"{label:>{wide}}" for label in answer.labels)
    budget = answer.budget
    digits = len(str(budget.limit)) if budget.limit is not None else 1
    limit, remaining = (json.dumps(value).rjust(digits) for value in (budget.limit, budget.remaining))
    receipt = "null" if answer.receipt is None else _render_receipt(answer.receipt)
    return (
        f'{{"labels":[{labels}],"n_clusters":{answer.n_clusters},"model":{json.dumps(answer.model)},'
        f'"model_digest":{json.dumps(answer.model_digest)},'
        f'"budget":{{"limit":{limit},"used":{budget.used:>{digits}},"remaining":{remaining}}},'
        f'"receipt":{receipt}}}'
    ).encode()


def _render_receipt(receipt: Receipt) -> str:
    """Write a receipt as JSON, always of the same length."""
    entry = len(str(receipt.entry))
    return " " * (len(str(2**62)) - entry) + receipt.model_dump_json()
