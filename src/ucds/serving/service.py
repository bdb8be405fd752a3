"""The life of a request: whose it is, what it may take, what the model says, and what it is charged."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

import numpy as np
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import ClientDisconnect, Request

from ucds.data.columns import first_positions
from ucds.errors import DamagedFileError, UserError
from ucds.labels.calibration import digest_of_contents
from ucds.labels.wire import (
    NPY_TYPE,
    Accepts,
    Calibration,
    CalibrationAnswer,
    LabelAnswer,
    ServiceInfo,
    UnusableSample,
)
from ucds.math.arrays import FloatArray
from ucds.serving import events
from ucds.serving.batcher import Batcher, Stopped
from ucds.serving.bounds import Repeats, Share, Waste
from ucds.serving.decoding import ImageDecoder, Samples, content_keys, cost_of_bytes, decode_embeddings
from ucds.serving.keys import Key, KeyRefused
from ucds.serving.labeller import Labeller, Rows
from ucds.serving.ledger import Answers, Ledger
from ucds.serving.limits import Limits
from ucds.serving.ops import Metrics
from ucds.serving.problems import Refusal
from ucds.serving.signing import Signer
from ucds.serving.uploads import parse_images
from ucds.training.inference import FEWEST_TO_CENTRE

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

MULTIPART = "multipart/form-data"
_MOST_REMEMBERED = 10_000
_CALIBRATIONS = 8


class Service:
    """The model, its queue, the ledger, and the bounds on what keys take.

    What a request began to compute is finished and charged, whether or not its client waits: asked again, the
    answer is free. Work that comes to nothing is a debt of its key, see :class:`ucds.serving.bounds.Waste`.

    Args:
        labeller: model.
        ledger: ledger of keys and answers.
        signer: signs a receipt for each answer.
        limits: limits of a request and of the service.
    """

    def __init__(self, labeller: Labeller, ledger: Ledger, signer: Signer, limits: Limits) -> None:
        self.labeller, self.ledger, self.signer, self.limits = labeller, ledger, signer, limits
        self.accepts: Accepts = "images" if len(labeller.row_shape) == 3 else "embeddings"
        self.batcher = Batcher(labeller, limits.max_wait_seconds)
        self.queue = Share(limits.max_queue, limits.for_one(limits.max_queue, limits.max_batch), "samples")
        self.metrics = Metrics(self.batcher, self.queue)
        most_bytes = limits.for_one(limits.max_body_bytes, limits.max_request_bytes)
        self._bytes = Share(limits.max_body_bytes, most_bytes, "bytes")
        self._places = Share(limits.max_requests, limits.for_one(limits.max_requests), "requests")
        self._calibrations = Share(_CALIBRATIONS, 1, "calibrations")
        self._calibrating = asyncio.Lock()  # beside the model's thread, so not several at a time
        self._waste = Waste(limits.waste_seconds, self._tell_of_waste)
        self._repeats = Repeats()
        self._names: dict[int, str] = {}
        self._unusable: OrderedDict[tuple[int, bytes], str] = OrderedDict()
        self._decoder: ImageDecoder | None = None
        if self.accepts == "images":
            self._decoder = ImageDecoder(labeller.row_shape[-1], limits, self._waste)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="ledger-read")
        # One writer: the other charges of this process wait here, and not for the database's lock.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")

    def close(self) -> None:
        """Stop all threads and processes; charges that were begun are finished."""
        self.batcher.close()
        if self._decoder is not None:
            self._decoder.close()
        self._readers.shutdown()
        self._writer.shutdown()

    @property
    def calibrates(self) -> bool:
        """Whether a key can be calibrated: the model recentres, and one request can hold samples enough."""
        return self.labeller.mean_width is not None and self.limits.max_batch >= FEWEST_TO_CENTRE

    def check_ready(self) -> None:
        """Make sure that the service can answer now.

        Raises:
            Refusal: the model does not answer, or the ledger cannot be used (503).
        """
        if not self.batcher.alive:
            raise Refusal("busy", "The model does not answer.", retry_after=5)
        try:
            self.ledger.check_ready(self.signer)
        except UserError as error:
            raise _ledger_away(error) from None

    async def info(self, request: Request, shown: HTTPAuthorizationCredentials | None) -> ServiceInfo:
        """Return what a client must know to ask, and the budget and the calibration of its key.

        Raises:
            Refusal: the key may not ask (401, 403).
        """
        key = await self._authenticate(request, shown)
        labeller, limits = self.labeller, self.limits
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
            signer=self.signer.public,
            budget=key.budget,
            privacy=labeller.privacy,
            fewest_to_calibrate=FEWEST_TO_CENTRE if self.calibrates else None,
            calibration=key.use(labeller.digest).calibration,
        )

    async def answer(self, request: Request, shown: HTTPAuthorizationCredentials | None) -> LabelAnswer:
        """Label the samples of a request that can be used, and charge for those that are new.

        Args:
            request: request with the samples as its body.
            shown: key that the client shows.

        Raises:
            Refusal: the request gets no labels; nothing is charged.
        """
        async with self._admit(request, shown) as (key, samples):
            contents = await asyncio.to_thread(content_keys, samples)
            unusable: dict[bytes, str] = {}
            found = await self._settle(key, samples, contents, unusable, request.state.request_id)
        labels = [None if content in unusable else found.labels[content] for content in contents]
        self.metrics.answered.inc(len(labels) - labels.count(None))
        receipt = None
        if found.labels:
            receipt = self.signer.receipt(found, self.labeller.digest, self.labeller.privacy)
        return LabelAnswer(
            labels=labels,
            unusable=_name(contents, unusable),
            n_clusters=self.labeller.n_clusters,
            model=self.labeller.name,
            model_digest=self.labeller.digest,
            budget=found.budget,
            receipt=receipt,
        )

    async def calibrate(
        self, request: Request, shown: HTTPAuthorizationCredentials | None
    ) -> CalibrationAnswer:
        """Fix the mean of a request's samples as the one from which all samples of the key are seen.

        Args:
            request: request with the samples as its body.
            shown: key that the client shows.

        Raises:
            Refusal: the request cannot be answered, or the key cannot be calibrated by these samples.
        """
        async with self._admit(request, shown) as (key, samples):
            contents = await asyncio.to_thread(content_keys, samples)
            with self._calibrations.taking(key.number, 1):
                async with self._calibrating:
                    return await self._calibrate_or_waste(key, samples, contents)

    async def _settle(
        self, key: Key, samples: Samples, contents: list[bytes], unusable: dict[bytes, str], request: str
    ) -> Answers:
        """Look up what is known, compute the rest, and charge for it; fill in what cannot be used."""
        model = self.labeller.digest
        use = key.use(model)
        found = await self._read(self.ledger.find_answers, key, model, contents)
        first = {
            contents[i]: i for i in first_positions(contents).tolist() if contents[i] not in found.labels
        }
        if not first:
            self._repeats.add(key, len(contents))
            return found
        with self.queue.taking(key.number, len(first)):
            rows = await self._make_rows(key, samples, first, unusable)
            computed = await self._compute(key, rows, use.vector)
            usable = [content for content in contents if content not in unusable]
            if not computed:
                return found
            digest = None if use.calibration is None else use.calibration.digest
            return await self._write(
                lambda: self.ledger.charge(
                    key,
                    model,
                    usable,
                    computed,
                    request=request,
                    calibration=digest,
                    privacy=self.labeller.privacy,
                )
            )

    async def _calibrate_or_waste(
        self, key: Key, samples: Samples, contents: list[bytes]
    ) -> CalibrationAnswer:
        """Calibrate a key; the time is a debt of the key unless it has a new calibration for it."""
        begun, unusable = time.monotonic(), dict[bytes, str]()
        is_new = False
        try:
            told, is_new = await self._calibrate(key, samples, contents, unusable)
            return CalibrationAnswer(calibration=told, unusable=_name(contents, unusable))
        finally:
            if not is_new:
                self._waste.charge(key.number, time.monotonic() - begun)

    async def _calibrate(
        self, key: Key, samples: Samples, contents: list[bytes], unusable: dict[bytes, str]
    ) -> tuple[Calibration, bool]:
        """Compute the mean of the samples that can be used, each content once, and keep it."""
        model = self.labeller.digest
        first = {contents[i]: i for i in first_positions(contents).tolist()}
        with self.queue.taking(key.number, len(first)):
            rows = await self._make_rows(key, samples, first, unusable)
            if len(rows) < FEWEST_TO_CENTRE:
                detail = f"A calibration needs {FEWEST_TO_CENTRE} different samples, not {len(rows)}."
                raise Refusal("not-calibrated", detail)
            digest = digest_of_contents(rows)
            found = await self._read(key.use(model).find_calibration, digest)
            if found is not None:
                return found, False
            mean = await asyncio.to_thread(self.labeller.mean, np.stack(list(rows.values())))
        told = Calibration(samples=len(rows), digest=digest)
        return await self._write(lambda: self.ledger.calibrate(key, model, told, mean)), True

    @asynccontextmanager
    async def _admit(
        self, request: Request, shown: HTTPAuthorizationCredentials | None
    ) -> AsyncIterator[tuple[Key, Samples]]:
        """Refuse a request by its headers, or receive its samples and hold its places while it is in work."""
        key = await self._authenticate(request, shown)
        length = self._check_headers(request)
        pending = self.queue.held_by(key.number) + self._repeats.count(key)
        seconds = self.ledger.seconds_to_wait(key, pending)
        if seconds is not None:
            raise Refusal("over-rate", "The key asks faster than it may; wait.", retry_after=seconds)
        with self._places.taking(key.number, 1), self._bytes.taking(key.number, length):
            await asyncio.sleep(self._waste.delay(key.number))
            try:
                samples = await self._receive(request)
            except Refusal:
                self._waste.charge(key.number, cost_of_bytes(length))
                raise
            yield key, samples

    async def _authenticate(self, request: Request, shown: HTTPAuthorizationCredentials | None) -> Key:
        address = None if request.client is None else request.client.host
        try:
            if shown is None:
                raise Refusal("no-key", "Send your key in the header 'Authorization: Bearer KEY'.")
            key = await self._read(self.ledger.authenticate, shown.credentials, address)
        except Refusal as refusal:
            if refusal.kind != "ledger-away":
                self.metrics.count_failure(refusal.kind)
                told = {"reason": refusal.kind, "client": address, "request": request.state.request_id}
                events.record("failed-authentication", key=refusal.key, **told)
            raise
        self._names[key.number] = key.name
        return key

    def _check_headers(self, request: Request) -> int:
        """Return the length of a body that may be sent."""
        found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = MULTIPART if self.accepts == "images" else NPY_TYPE
        if found != wanted:
            raise Refusal("wrong-type", f"This model takes {self.accepts}; send them as {wanted}.")
        length, most = request.headers.get("content-length", ""), self.limits.max_request_bytes
        if not (length.isascii() and length.isdigit()):
            raise Refusal("no-length", "Send the request's length in the header Content-Length.")
        if int(length[:18]) > most:
            detail = f"A request may hold {most:,} bytes at most; send fewer samples."
            raise Refusal("too-large", detail)
        return int(length)

    async def _receive(self, request: Request) -> Samples:
        seconds, body = self.limits.body_seconds, bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for piece in request.stream():
                    body += piece
        except TimeoutError:
            detail = f"The body did not arrive within {seconds:g} seconds; send fewer samples."
            raise Refusal("too-slow", detail) from None
        except ClientDisconnect:
            raise Refusal("malformed", "The connection ended before the body did.") from None
        if self.accepts == "images":
            kind = request.headers["content-type"]
            return await asyncio.to_thread(parse_images, bytes(body), kind, self.limits)
        return await asyncio.to_thread(
            decode_embeddings, bytes(body), self.labeller.row_shape[0], self.limits
        )

    async def _make_rows(
        self, key: Key, samples: Samples, first: dict[bytes, int], unusable: dict[bytes, str]
    ) -> dict[bytes, Rows]:
        """Return a row for each content that can be used, and fill in the reasons of the others."""
        if not isinstance(samples, list):
            rows = {content: samples[position] for content, position in first.items()}
            unusable |= {c: "holds NaN or infinity" for c, row in rows.items() if not np.isfinite(row).all()}
            return {content: row for content, row in rows.items() if content not in unusable}
        assert self._decoder is not None
        known = {c: self._unusable[key.number, c] for c in first if (key.number, c) in self._unusable}
        asked = [content for content in first if content not in known]
        reasons: dict[int, str] = {}
        try:
            files = [samples[first[content]] for content in asked]
            decoded = await self._decoder.decode(key.number, files, reasons)
        finally:
            # Remembered: a request that is refused on the way pays for none of them twice.
            found = {asked[place]: reason for place, reason in reasons.items()}
            self._unusable |= {(key.number, content): reason for content, reason in found.items()}
            while len(self._unusable) > _MOST_REMEMBERED:
                self._unusable.popitem(last=False)
            self.metrics.unusable.inc(len(known) + len(found))
            unusable |= known | found
        return {content: row for content, row in zip(asked, decoded, strict=True) if content not in unusable}

    async def _compute(self, key: Key, rows: dict[bytes, Rows], mean: FloatArray | None) -> dict[bytes, int]:
        if not rows:
            return {}
        stacked = np.stack(list(rows.values()))
        try:
            labels = await asyncio.wrap_future(self.batcher.submit(stacked, key.number, mean))
        except Stopped:
            raise Refusal("stopping", "The service is being stopped; come again.", retry_after=5) from None
        self.metrics.computed.inc(len(rows))
        return dict(zip(rows, labels.tolist(), strict=True))

    async def _read(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await _ask(self._readers, lambda: function(*arguments))

    async def _write(self, work: Callable[[], Result]) -> Result:
        return await _ask(self._writer, work)

    def _tell_of_waste(self, key: int) -> None:
        events.record("waste", key=self._names.get(key))


async def _ask(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    """Call the ledger in a thread of a pool, and turn what it refuses into an answer."""
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work)
    except KeyRefused as error:
        wait = 1 if error.kind == "busy" else None
        raise Refusal(error.kind, error.detail, retry_after=wait, key=error.name) from None
    except UserError as error:
        raise _ledger_away(error) from None


def _ledger_away(error: UserError) -> Refusal:
    kind = "verification-failed" if isinstance(error, DamagedFileError) else "ledger-away"
    events.record(kind, problem=str(error))
    return Refusal(
        "ledger-away", "The ledger cannot be used, so nothing can be answered; come again.", retry_after=5
    )


def _name(contents: Iterable[bytes], unusable: dict[bytes, str]) -> list[UnusableSample]:
    """Name the samples of a request that cannot be used, by their positions."""
    return [
        UnusableSample(position=position, reason=unusable[content])
        for position, content in enumerate(contents)
        if content in unusable
    ]
