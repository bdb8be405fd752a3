"""The course of a request: its key, its limits, the model's answers, and the charge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import numpy as np
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import ClientDisconnect, Request

from ucds.data.confinement import weakness
from ucds.data.content import content_key
from ucds.errors import DamagedFileError, UserError, printable
from ucds.labels import wire
from ucds.serving.bounds import Share, Waste, cost_of_bytes, cost_of_refusal
from ucds.serving.decoding import ImageDecoder
from ucds.serving.keys import Key
from ucds.serving.labeller import Batcher, ModelLabeller, Rows
from ucds.serving.ledger import Answers, Ledger
from ucds.serving.limits import Limits
from ucds.serving.ops import Metrics, record
from ucds.serving.problems import Refusal
from ucds.serving.signing import Signer
from ucds.serving.uploads import read_embeddings, read_images
from ucds.training.loaded import FEWEST_TO_CENTRE

Given = TypeVarTuple("Given")
Result = TypeVar("Result")
Shown = HTTPAuthorizationCredentials | None

MULTIPART = "multipart/form-data"


@dataclass(frozen=True)
class _Upload:
    """The samples of a request: content keys in order, and each content once."""

    key: Key
    length: int
    contents: list[bytes]
    samples: dict[bytes, Any]


class Service:
    """The model, its queue, the ledger, and the bounds on keys; the creator has to close it.

    A computation that has begun is finished and charged, whether or not the client waits; asking again is
    free. Wasted work is a debt of the key, see :class:`ucds.serving.bounds.Waste`.
    """

    def __init__(
        self,
        labeller: ModelLabeller,
        ledger: Ledger,
        signer: Signer,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.labeller, self.ledger, self.signer, self.limits = labeller, ledger, signer, limits
        self.accepts: wire.Accepts = "images" if len(labeller.row_shape) == 3 else "embeddings"
        self.batcher = Batcher(labeller)
        self.queue = Share(limits.max_queue, limits.for_one(limits.max_queue, limits.max_batch), "samples")
        self.metrics = Metrics()
        watch = self.metrics.watch
        watch("ucds_samples_queued", "Samples accepted and not yet answered", lambda: self.queue.held)
        watch("ucds_model_batches", "Batches the model ran", lambda: self.batcher.batches)
        watch("ucds_model_rows", "Samples in those batches, without padding", lambda: self.batcher.rows)
        most_bytes = limits.for_one(limits.max_body_bytes, limits.max_request_bytes)
        self._bytes = Share(limits.max_body_bytes, most_bytes, "bytes")
        self._places = Share(limits.max_requests, limits.for_one(limits.max_requests), "requests")
        self._calibrating = asyncio.Lock()  # beside the model's thread, so not several at a time
        self._names: dict[int, str] = {}
        self._waste = Waste(limits.waste_seconds, lambda key: record("waste", key=self._names[key]), clock)
        self._decoder: ImageDecoder | None = None
        self.weakness = weakness() if self.accepts == "images" else ""  # of its decoders' confinement
        if self.accepts == "images":
            self._decoder = ImageDecoder(labeller.row_shape[-1], limits, self._waste)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="ledger-read")
        # One writer: the other charges of this process wait here, and not for the database's lock.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")

    def close(self) -> None:
        """Stop all threads and processes, after finishing charges that were begun."""
        self.batcher.close()
        if self._decoder is not None:
            self._decoder.close()
        self._readers.shutdown()
        self._writer.shutdown()

    @property
    def calibrates(self) -> bool:
        """Whether a key can be calibrated: the model allows it, and one request can hold enough samples."""
        return self.labeller.mean_width is not None and self.limits.max_batch >= FEWEST_TO_CENTRE

    def check_ready(self) -> str:
        """Say whether the service is ready, and what it lacks; refuse if model or ledger cannot be used."""
        if not self.batcher.alive:
            raise Refusal("busy", "The model does not answer.", retry_after=5)
        try:
            self.ledger.check_ready(self.signer)
        except UserError as error:
            raise _ledger_away(error) from None
        return f"ready; {self.weakness}" if self.weakness else "ready"

    async def info(self, request: Request, shown: Shown) -> wire.ServiceInfo:
        """Return the facts that a client needs to ask, and the balance and the calibration of its key."""
        key = await self._authenticate(request, shown)
        labeller, limits = self.labeller, self.limits
        return wire.ServiceInfo(
            provider=labeller.name,
            model_digest=labeller.digest,
            n_clusters=labeller.n_clusters,
            accepts=self.accepts,
            width=labeller.row_shape[0] if self.accepts == "embeddings" else None,
            columns=labeller.columns,
            max_batch=limits.max_batch,
            max_image_bytes=limits.max_image_bytes,
            max_image_pixels=limits.max_image_pixels,
            max_request_bytes=limits.max_request_bytes,
            signer=self.signer.public,
            balance=key.balance,
            privacy=labeller.privacy,
            fewest_to_calibrate=FEWEST_TO_CENTRE if self.calibrates else None,
            calibration=key.use(labeller.digest).calibration,
        )

    async def answer(self, request: Request, shown: Shown) -> wire.LabelAnswer:
        """Label the samples of a request that can be used, and charge for those that are new."""
        labeller = self.labeller
        async with self._admit(request, shown) as upload:
            asked = upload.key, labeller.digest, upload.contents
            found = await _ask(self._readers, self.ledger.find_answers, *asked)
            new = {content: one for content, one in upload.samples.items() if content not in found.labels}
            unusable: dict[bytes, str] = {}
            if new:
                with self.queue.taking(upload.key.number, len(new)):
                    rows, unusable = await self._make_rows(upload.key, new)
                    if rows:
                        usable = [content for content in upload.contents if content not in unusable]
                        found = await self._label(upload.key, usable, rows, request.state.request_id)
            else:
                self._waste.charge(upload.key.number, cost_of_bytes(upload.length))
        labels = [None if content in unusable else found.labels[content] for content in upload.contents]
        self.metrics.answered.inc(len(labels) - labels.count(None))
        receipt = None
        if found.labels:
            receipt = found.receipt(self.signer, labeller.digest, labeller.privacy)
        return wire.LabelAnswer(
            labels=labels,
            unusable=_name(upload, unusable),
            n_clusters=labeller.n_clusters,
            provider=labeller.name,
            model_digest=labeller.digest,
            balance=found.balance,
            receipt=receipt,
        )

    async def calibrate(self, request: Request, shown: Shown) -> tuple[wire.CalibrationAnswer, int]:
        """Fix the mean that is subtracted from a key's samples; also return the number of samples sent."""
        async with self._admit(request, shown) as upload:
            key, fresh = upload.key, False
            with self.queue.taking(key.number, len(upload.samples)):
                begun = time.monotonic()
                rows, unusable = await self._make_rows(key, upload.samples)
                spent = time.monotonic() - begun
                async with self._calibrating:
                    begun = time.monotonic() - spent  # the wait for others is no work
                    try:
                        found, fresh = await self._calibrate(key, rows)
                    finally:
                        if not fresh:
                            self._waste.charge(key.number, time.monotonic() - begun)
        answer = wire.CalibrationAnswer(calibration=found, unusable=_name(upload, unusable))
        return answer, len(upload.contents)

    async def _label(self, key: Key, contents: list[bytes], rows: dict[bytes, Rows], request: str) -> Answers:
        """Compute the labels of new contents, charge for them, and return those of all contents."""
        labeller, use = self.labeller, key.use(self.labeller.digest)
        stacked = np.stack(list(rows.values()))
        mean = await _ask(self._readers, self.ledger.mean, key, labeller.digest) if use.calibration else None
        labels = await asyncio.wrap_future(self.batcher.submit(stacked, key.number, mean))
        self.metrics.computed.inc(len(rows))
        charge = partial(
            self.ledger.charge,
            key,
            labeller.digest,
            contents,
            dict(zip(rows, labels.tolist(), strict=True)),
            request=request,
            calibration=use.calibration_digest,
            privacy=labeller.privacy,
        )
        return await _ask(self._writer, charge)

    async def _calibrate(self, key: Key, rows: dict[bytes, Rows]) -> tuple[wire.Calibration, bool]:
        """Return the mean of some samples, in the form kept for a key, and whether it is new."""
        if len(rows) < FEWEST_TO_CENTRE:
            detail = f"A calibration needs {FEWEST_TO_CENTRE} different samples, not {len(rows)}."
            raise Refusal("not-calibrated", detail)
        model, digest = self.labeller.digest, wire.digest_of_contents(rows)
        use = (await _ask(self._readers, self.ledger.state)).keys[key.number].use(model)  # as it is now
        if found := use.find_calibration(digest):
            return found, False
        mean = await asyncio.to_thread(self.labeller.mean, np.stack(list(rows.values())))
        told = wire.Calibration(samples=len(rows), digest=digest)
        return await _ask(self._writer, self.ledger.calibrate, key, model, told, mean), True

    @asynccontextmanager
    async def _admit(self, request: Request, shown: Shown) -> AsyncIterator[_Upload]:
        """Refuse a request by its headers, or receive its samples and count them while it is in work."""
        key = await self._authenticate(request, shown)
        length = self._check_headers(request)
        seconds = self.ledger.seconds_to_wait(key, self.queue.held_by(key.number))
        if seconds is not None:
            raise Refusal("over-rate", "The key asks faster than its rate allows; wait.", retry_after=seconds)
        self.queue.check(key.number)  # where there is no room for one sample, the body would come in vain
        with self._places.taking(key.number, 1), self._bytes.taking(key.number, length):
            await asyncio.sleep(self._waste.delay(key.number))
            try:
                sent = await self._receive(request)
                yield _Upload(key, length, [content for content, _ in sent], dict(sent))
            except Exception as error:  # whatever it is, the body came for nothing
                if not (isinstance(error, Refusal) and error.kind == "over-waste"):  # that is charged already
                    self._waste.charge(key.number, cost_of_refusal(length))
                raise

    async def _authenticate(self, request: Request, shown: Shown) -> Key:
        address = None if request.client is None else request.client.host
        try:
            if shown is None:
                raise Refusal("no-key", "Send your key in the header 'Authorization: Bearer KEY'.")
            key = await _ask(self._readers, self.ledger.authenticate, shown.credentials, address)
        except Refusal as refusal:
            if refusal.kind != "ledger-away":
                self.metrics.failures.labels(refusal.kind).inc()
                told = {"reason": refusal.kind, "client": address, "request": request.state.request_id}
                record("failed-authentication", key=refusal.key, **told)
            raise
        self._names[key.number] = key.name
        return key

    def _check_headers(self, request: Request) -> int:
        """Return the length of the body, after a check of the headers."""
        found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        wanted = MULTIPART if self.accepts == "images" else wire.NPY_TYPE
        if found != wanted:
            raise Refusal("wrong-type", f"This model takes {self.accepts}; send them as {wanted}.")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            detail = "Send the body as it is, without the header Content-Encoding."
            raise Refusal("wrong-type", detail, headers={"Accept-Encoding": "identity"})
        length, most = request.headers.get("content-length", ""), self.limits.max_request_bytes
        if not (length.isascii() and length.isdigit()):
            raise Refusal("no-length", "Send the request's length in the header Content-Length.")
        digits = length.lstrip("0") or "0"
        if len(digits) > 18 or int(digits) > most:
            detail = f"A request may hold {most:,} bytes at most; send fewer samples."
            raise Refusal("too-large", detail)
        return int(digits)

    async def _receive(self, request: Request) -> list[tuple[bytes, Any]]:
        """Return the samples of a body (files or rows of numbers), each after its content key."""
        body, seconds = bytearray(), self.limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    body += part
        except TimeoutError:
            detail = f"The body did not arrive within {seconds:g} seconds; send fewer samples."
            raise Refusal("too-slow", detail) from None
        except ClientDisconnect:
            raise Refusal("malformed", "The connection ended before the body did.") from None
        return await asyncio.to_thread(self._read, body, request.headers["content-type"])

    def _read(self, body: bytearray, content_type: str) -> list[tuple[bytes, Any]]:
        most, samples = self.limits.max_batch, list[Any]()
        if self.accepts == "images":
            samples = read_images(body, content_type, most)
        else:
            samples = list(read_embeddings(body, self.labeller.row_shape[0], most))
        return [(content_key(sample), sample) for sample in samples]

    async def _make_rows(
        self, key: Key, samples: dict[bytes, Any]
    ) -> tuple[dict[bytes, Rows], dict[bytes, str]]:
        """Return the rows of the samples that can be used, and the reasons of the others."""
        found: list[Rows | str]
        if self._decoder is not None:
            found = [*await self._decoder.decode(key.number, samples)]
        else:
            found = [row if np.isfinite(row).all() else "holds NaN or infinity" for row in samples.values()]
        pairs = list(zip(samples, found, strict=True))
        unusable = {content: reason for content, reason in pairs if isinstance(reason, str)}
        self.metrics.unusable.inc(len(unusable))
        return {content: row for content, row in pairs if not isinstance(row, str)}, unusable


async def _ask(pool: ThreadPoolExecutor, work: Callable[[*Given], Result], *given: *Given) -> Result:
    """Call the ledger in a thread of a pool, and turn its errors into refusals."""
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *given)
    except UserError as error:
        raise _ledger_away(error) from None


def _ledger_away(error: UserError) -> Refusal:
    kind = "verification-failed" if isinstance(error, DamagedFileError) else "ledger-away"
    record(kind, problem=str(error))
    return Refusal(
        "ledger-away",
        "The ledger cannot be used, so nothing can be answered; try again.",
        retry_after=5,
    )


def in_few_words(reason: str) -> str:
    """Return the start of a reason in ASCII, at most 200 bytes as JSON."""
    return printable(reason).encode("ascii", "replace").decode()[:100]


def _name(upload: _Upload, unusable: dict[bytes, str]) -> list[wire.UnusableSample]:
    """List the unusable samples of a request, by their positions."""
    return [
        wire.UnusableSample(position=position, reason=in_few_words(unusable[content]))
        for position, content in enumerate(upload.contents)
        if content in unusable
    ]
