"""What stands between a request and the ledger: whose key it is, how fast it asks, what it is charged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, TypeVarTuple

from starlette.requests import Request

from ucds.errors import UserError
from ucds.labels.wire import Receipt
from ucds.serving import calibration
from ucds.serving.calibration import KeyMean, NotCalibrated
from ucds.serving.checkpoints import CheckpointWriter
from ucds.serving.failures import FailureBrake
from ucds.serving.keys import KeyEnded, KeyRecord
from ucds.serving.ledger import Charge, Ledger, MeanChanged, OverBudget
from ucds.serving.metrics import Metrics
from ucds.serving.problems import Refusal
from ucds.serving.rate import limit_headers
from ucds.serving.signing import Signer

_READY_SECONDS = 1.0  # a test of the ledger holds so long: asking for it must not become work
_ENDED = "The key was revoked by its owner, or its time is over; ask the provider for another."
logger = logging.getLogger("ucds.serving")
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True)
class AccountsOptions:
    """The ledger of a service, and what follows from its charges.

    Attributes:
        ledger: ledger of keys and answers.
        signer: signs a receipt for each charge; no receipts are given if ``None``.
        checkpoints: learns how long the log has become; ``None`` without checkpoints.
        shared_rates: open file in which several processes share the rates of the keys, by its number;
            ``None`` for a process of its own.
    """

    ledger: Ledger
    signer: Signer | None = None
    checkpoints: CheckpointWriter | None = None
    shared_rates: int | None = None


class Accounts:
    """The ledger as the service uses it, from its event loop.

    Args:
        options: ledger, signer and checkpoints.
        metrics: figures; failed authentications are counted there.
        failure_seconds: longest delay of the answer to a wrong key.
    """

    def __init__(self, options: AccountsOptions, metrics: Metrics, failure_seconds: float) -> None:
        self._ledger, self._signer, self._checkpoints = options.ledger, options.signer, options.checkpoints
        self._metrics = metrics
        if self._checkpoints is not None:
            metrics.watch_checkpoints(self._checkpoints)
        self._rates = self._ledger.make_rates(options.shared_rates)
        self._brake = FailureBrake(failure_seconds)
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="ledger-read")
        # One writer: the other charges of this process wait here, and not for the database's lock.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._ready_lock, self._ready_until = asyncio.Lock(), 0.0
        self._means: dict[tuple[int, str], KeyMean] = {}

    @property
    def signer(self) -> str | None:
        """Public key of the receipts; ``None`` where none are given."""
        return None if self._signer is None else self._signer.public

    def close(self) -> None:
        """Finish what was begun, and write the last checkpoint."""
        self._readers.shutdown()
        self._writer.shutdown()
        if self._checkpoints is not None:
            self._checkpoints.close()

    async def identify(self, request: Request, secret: str | None) -> KeyRecord:
        """Return the record of the key that a client shows.

        Args:
            request: request of the client.
            secret: secret that the client shows; ``None`` if it shows none.

        Raises:
            Refusal: the key is missing or unknown (401), or revoked or over (403); or too many wrong keys
                were shown (429).
        """
        if secret is None:
            self._metrics.count_failure("no-key")
            raise Refusal("no-key", "Send your key in the header 'Authorization: Bearer KEY'.")
        record = await self._ask(self._readers, self._ledger.find_key, secret)
        if record is not None and record.is_active:
            return record
        if record is None:
            detail = "This service does not know the key; check it with its owner."
            refusal = Refusal("unknown-key", detail)
        elif record.revoked is not None:
            refusal = Refusal("revoked-key", "The key was revoked by its owner.")
        else:
            refusal = Refusal("expired-key", "The time of the key is over; ask the provider for another.")
        self._metrics.count_failure(refusal.kind)
        if not await self._brake.wait(request.client.host if request.client else ""):
            raise Refusal("too-many-failures", "Too many wrong keys were shown; wait.", retry_after=5)
        raise refusal

    async def admit(self, key: KeyRecord) -> None:
        """Let a request in, if its key does not ask faster than it may.

        Raises:
            Refusal: the key asks too fast (429).
        """
        if key.rate is None:
            return
        seconds = await self._ask(self._readers, self._rates.admit, key.number, key.rate)
        if seconds is not None:
            headers = limit_headers(key.budget, key.rate, 1 - seconds * key.rate)
            detail = "The key asks faster than it may; wait."
            raise Refusal("over-rate", detail, retry_after=seconds, headers=headers)

    async def pay(self, key: KeyRecord, samples: int) -> float | None:
        """Count the further samples of a request that was let in; return how many the key may ask at once."""
        if key.rate is None:
            return None
        return await self._ask(self._readers, self._rates.pay, key.number, key.rate, samples - 1)

    async def find_known(self, key: KeyRecord, model: str, contents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the answers that this key was given before.

        Raises:
            Refusal: the other samples are more than the budget has left (429).
        """
        try:
            return await self._ask(self._readers, self._ledger.known, key, model, contents)
        except OverBudget as error:
            raise self._over_budget(key, error) from None

    async def find_mean(self, key: KeyRecord, model: str) -> KeyMean | None:
        """Return the mean from which a model sees the samples of a key; ``None`` for the model's own."""
        known = self._means.get((key.number, model))
        if known is None:  # a mean never changes, but another replica may fix one at any time
            known = await self._ask(self._readers, self._read_mean, key, model)
        if known is not None:
            self._means[key.number, model] = known
        return known

    async def check_open(self, key: KeyRecord, model: str, digest: str) -> KeyMean | None:
        """Return the calibration of a key by these samples; ``None`` if there is none yet.

        Raises:
            Refusal: the key cannot be calibrated by them (409).
        """
        try:
            return await self._ask(self._readers, calibration.check_open, self._ledger, key, model, digest)
        except NotCalibrated as error:
            raise Refusal("not-calibrated", str(error)) from None

    async def calibrate(self, key: KeyRecord, model: str, mean: KeyMean) -> KeyMean:
        """Fix the mean from which a model sees the samples of a key; see `calibration.calibrate`.

        Raises:
            Refusal: the key cannot be calibrated any more (409), or was revoked meanwhile (403).
        """
        try:
            return await self._ask(self._writer, calibration.calibrate, self._ledger, key, model, mean)
        except NotCalibrated as error:
            raise Refusal("not-calibrated", str(error)) from None
        except KeyEnded:
            raise Refusal("revoked-key", _ENDED) from None

    async def charge(
        self,
        key: KeyRecord,
        model: str,
        contents: Sequence[bytes],
        labels: Mapping[bytes, int],
        request: str,
        privacy: str | None,
        calibrated: str | None,
    ) -> tuple[Charge, Receipt | None]:
        """Charge a key for the answers to a request, and sign a receipt; see `Ledger.charge`.

        Raises:
            Refusal: the budget does not cover the answers (429), the key was revoked meanwhile (403), or it
                was calibrated meanwhile (503).
        """
        told = (key, model, contents, labels, request, privacy, calibrated)
        try:
            charge = await self._ask(self._writer, self._ledger.charge, *told)
        except MeanChanged:
            raise Refusal("busy", "The key was calibrated meanwhile; come again.", retry_after=1) from None
        except OverBudget as error:
            raise self._over_budget(key, error) from None
        except KeyEnded:
            raise Refusal("revoked-key", _ENDED) from None
        if self._checkpoints is not None:
            self._checkpoints.note(charge.entry.entries)
        return charge, None if self._signer is None else self._signer.receipt(charge, model, privacy)

    async def check_ready(self) -> None:
        """Make sure that a charge could be written now.

        Raises:
            Refusal: the ledger does not take a write (503).
        """
        async with self._ready_lock:
            if time.monotonic() >= self._ready_until:
                await self._ask(self._writer, self._ledger.check_writable)
                self._ready_until = time.monotonic() + _READY_SECONDS

    def _read_mean(self, key: KeyRecord, model: str) -> KeyMean | None:
        with self._ledger.transaction() as connection:
            return calibration.find(connection, key.number, model)

    def _over_budget(self, key: KeyRecord, error: OverBudget) -> Refusal:
        return Refusal("over-budget", str(error), headers=limit_headers(error.budget, key.rate, None))

    async def _ask(
        self, pool: ThreadPoolExecutor, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Call a function of the ledger in a thread of a pool."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
        except UserError as error:
            logger.error("the ledger does not answer: %s", error)
            detail = "The ledger cannot be used, so nothing can be answered; come again."
            raise Refusal("ledger-away", detail, retry_after=5) from None
