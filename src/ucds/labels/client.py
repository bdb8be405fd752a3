"""Speaks to a label service: one request at a time, again where that helps, and believing nothing."""

from __future__ import annotations

import contextlib
import email.utils
import ipaddress
import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from ucds.errors import InputError
from ucds.labels.questions import Body
from ucds.labels.wire import INFO_PATH, LABELS_PATH, LabelAnswer, Message, Problem, ServiceInfo

_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_WAIT = 30.0
_MOST_ANSWER_BYTES = 4 * 2**20
_Answer = TypeVar("_Answer", bound=Message)


class InvalidSamplesError(Exception):
    """The service refused a request because of some of its samples.

    Attributes:
        reasons: by position in the request.
    """

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} samples refused")
        self.reasons = reasons


class OverBudgetError(Exception):
    """The key's budget does not cover a request, of which nothing was charged."""


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: httpx.Headers
    body: bytes


@dataclass
class LabelClient:
    """A connection to a label service, with a key or none; usable from several threads.

    What can be better at the next try is tried again, after waits that double from ``first_wait`` and
    are spread at random, or as long as the service asks: lost connections, 429 with ``Retry-After``,
    502, 503, 504. Nothing else is. The service charges by content, so a repeated question is free.

    Attributes:
        url: of the service, without ``/v1``.
        key: sent as a bearer token; in no message, representation or file. ``None`` for a service that
            is open to everybody, on one's own machine.
        parallel: requests under way at a time, for those who ask in a loop.
        batch_size: most samples in one request, within the service's own limit; 64 if ``None``.
        timeout: seconds without a byte after which a connection is given up.
        patience: seconds that one request may take with all its tries.
        first_wait: seconds before the second try.
        allow_plain_http: send the key over unencrypted HTTP to another machine.

    Raises:
        UserError: the URL or key cannot be used.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    parallel: int = 4
    batch_size: int | None = None
    timeout: float = 60.0
    patience: float = 300.0
    first_wait: float = 0.5
    allow_plain_http: bool = False
    _http: httpx.Client = field(init=False, repr=False)
    _stopped: threading.Event = field(init=False, repr=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Refuse what cannot be used, and what would give the key away."""
        self.url = self.url.rstrip("/")
        local = _check_url(self.url, self.allow_plain_http)
        if self.parallel < 1 or (self.batch_size is not None and self.batch_size < 1):
            raise InputError("parallel and batch_size must be at least 1")
        self._http = httpx.Client(
            headers={"Accept-Encoding": "identity"} | _authorization(self.key),
            timeout=httpx.Timeout(self.timeout, connect=min(10.0, self.timeout), pool=None),
            limits=httpx.Limits(max_connections=self.parallel),
            trust_env=not local,  # a proxy has no business between us and our own machine
        )

    def __enter__(self) -> LabelClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._http.close()

    def stop(self) -> None:
        """Try nothing again from now on; requests under way may still be answered."""
        self._stopped.set()

    def info(self) -> ServiceInfo:
        """What the service says of itself.

        Raises:
            UserError: it cannot be reached, does not take the key, or is no label service.
        """
        # Short patience: at the first contact a wrong address is likelier than a service in trouble.
        reply = self._send("GET", INFO_PATH, None, min(self.patience, 20.0))
        if reply.status != 200:
            raise InputError(self._refusal(reply))
        return self._parse(ServiceInfo, reply)

    def ask(self, body: Body, count: int) -> LabelAnswer:
        """Ask for the labels of ``count`` samples.

        Raises:
            InvalidSamplesError: some of them cannot be used; the others may be asked about again.
            OverBudgetError: the budget does not cover them.
            UserError: anything else that stands between us and the labels.
        """
        reply = self._send("POST", LABELS_PATH, body, self.patience)
        if reply.status == 200:
            return self._check(self._parse(LabelAnswer, reply), count)
        if reply.status == 429:
            raise OverBudgetError
        problem = _problem_of(reply)
        if reply.status == 422 and problem is not None and problem.invalid:
            if any(sample.position >= count for sample in problem.invalid):
                raise InputError(f"{self.url} refused samples that were not in the request")
            raise InvalidSamplesError({sample.position: sample.detail for sample in problem.invalid})
        raise InputError(self._refusal(reply))

    def _send(self, method: str, path: str, body: Body | None, patience: float) -> _Reply:
        deadline = time.monotonic() + patience
        for attempt in itertools.count():
            asked_to_wait = None
            try:
                reply = self._send_once(method, path, body)
            except httpx.TransportError as error:
                trouble = f"{self.url} cannot be reached ({_in_words(error)})"
                if "CERTIFICATE" in str(error):
                    raise InputError(trouble) from None
            else:
                asked_to_wait = _retry_after(reply.headers)
                over_budget = reply.status == 429 and asked_to_wait is None
                if reply.status not in _RETRIED or over_budget:
                    return reply
                trouble = self._refusal(reply)
            wait = _wait_before(attempt, self.first_wait, asked_to_wait)
            if time.monotonic() + wait > deadline:
                raise InputError(f"{trouble}; try again later")
            if self._stopped.wait(wait):
                raise InputError(trouble)
        raise AssertionError("unreachable")

    def _send_once(self, method: str, path: str, body: Body | None) -> _Reply:
        headers = {} if body is None else {"Content-Type": body.content_type}
        content = None if body is None else body.content
        with self._http.stream(method, self.url + path, content=content, headers=headers) as response:
            # Neither unpacked nor read without end: an answer of integers is short.
            received = bytearray()
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > _MOST_ANSWER_BYTES:
                    raise InputError(f"{self.url} sends an answer without end: it is no label service")
            return _Reply(response.status_code, response.headers, bytes(received))

    def _parse(self, schema: type[_Answer], reply: _Reply) -> _Answer:
        try:
            return schema.model_validate_json(reply.body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"])) or "the whole"
            raise InputError(
                f"the answer of {self.url} is not of the form agreed on and is refused "
                f"({place}: {first['msg']})"
            ) from None

    def _check(self, answer: LabelAnswer, count: int) -> LabelAnswer:
        if len(answer.labels) != count:
            raise InputError(f"{self.url} gave {len(answer.labels)} labels for {count} samples")
        return answer

    def _refusal(self, reply: _Reply) -> str:
        problem = _problem_of(reply)
        if problem is not None:
            missing = reply.status == 401 and self.key is None
            hint = " (environment variable UCDS_KEY, or --key)" if missing else ""
            return f"{self.url} answers {reply.status}: {problem.detail}{hint}"
        if 300 <= reply.status < 400:
            return f"{self.url} sends us on to {reply.headers.get('Location')}: give that address yourself"
        return f"{self.url} answers {reply.status}: is that the address of a label service?"


def _authorization(key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("the key is not one line of plain letters and digits: copy it again")
    return {"Authorization": f"Bearer {key}"}


def _problem_of(reply: _Reply) -> Problem | None:
    try:
        return Problem.model_validate_json(reply.body)
    except ValidationError:
        return None


def _check_url(url: str, allow_plain_http: bool) -> bool:
    """Refuse an address that we cannot or should not speak to; say whether it is our own machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{url!r} is no address of a service; write it like https://labels.example.org")
    if parts.username is not None:
        raise InputError("the address must hold no user name or password: give the key instead")
    local = _is_loopback(parts.hostname)
    if parts.scheme == "http" and not local and not allow_plain_http:
        raise InputError(
            f"{url} is not encrypted, and the key and the samples could be read on the way: use https, "
            "or say --allow-plain-http if the network is safe"
        )
    return local


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds that the service asks us to wait: a number, or a date."""
    text = headers.get("Retry-After")
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (date - datetime.now(UTC)).total_seconds()) if date.tzinfo else 0.0


def _wait_before(attempt: int, first: float, asked: float | None) -> float:
    usual = float(min(_LONGEST_WAIT, first * 2.0**attempt))
    # Spread, so that clients which were turned away together do not come back together.
    spread = random.uniform(0.5, 1.0) * usual
    return spread if asked is None else asked + random.uniform(0.0, 0.5) * first


def _in_words(error: httpx.TransportError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
