"""The client of a label service: sends requests, repeats them if that can help, and checks every answer."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import re
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx
from pydantic import ValidationError

from ucds.arguments import require_fields
from ucds.errors import InputError, RefusedError, ServiceUnavailableError, first_problem, shown
from ucds.labels import wire
from ucds.labels.questions import Body

_LOCATION = "X-Location"
_RETRIED = frozenset({429, 502, 503, 504})
_LONGEST_WAIT = 30.0
_LONGEST_TIME = 1e6  # seconds that a user may ask for; some systems take no more
_MOST_ANSWER_BYTES = 4 * 2**20
_Answer = TypeVar("_Answer", bound=wire.Message)


class OverBudgetError(Exception):
    """The key's budget does not cover a request; nothing was charged."""


class _Reply(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes


@dataclass
class LabelClient:
    """A connection to a label service, with or without a key; several threads may use it.

    A request is repeated only after a lost connection, 429 with ``Retry-After``, 502, 503 or 504. The waits
    start at ``first_wait``, double each time and have a random part; if the service names a wait, the client
    waits that long. The service charges by content, so a repeated question costs nothing.

    Attributes:
        url: address of the service, without ``/v1``; https, or this machine. Its certificate is checked
            against the system's authorities, or those in the file that the environment variable
            ``SSL_CERT_FILE`` names.
        key: secret, sent as a bearer token. It appears in no message, representation or file.
        timeout: seconds without a received byte after which a connection is given up.
        patience: longest time in seconds for one request with all its tries.
        first_wait: seconds before the second try.
        overdraw: whether to ask a query although the budget may not cover it.
        calibrate: whether a query first calibrates the key, if it is not calibrated yet.
        signer: public key that must sign the receipts, in hexadecimal digits; if ``None``, the first that the
            service names.

    Raises:
        InputError: the URL, the key or a time cannot be used.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 60.0
    patience: float = 300.0
    first_wait: float = 0.5
    overdraw: bool = False
    calibrate: bool = False
    signer: str | None = None
    _http: httpx.Client = field(init=False, repr=False)
    _stopped: threading.Event = field(init=False, repr=False, default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Refuse unusable addresses and keys, and addresses that would expose the key."""
        require_fields(self)
        for name in ("timeout", "patience", "first_wait"):
            if not 0 < getattr(self, name) < _LONGEST_TIME:
                raise InputError(f"`{name}` must be above 0 seconds and below {_LONGEST_TIME:,.0f}")
        self.url = self.url.rstrip("/")
        local = _check_url(self.url)
        self._http = httpx.Client(
            headers={"Accept-Encoding": "identity"} | _authorization(self.key),
            timeout=httpx.Timeout(self.timeout, connect=min(10.0, self.timeout), pool=None),
            trust_env=not local,  # requests to the own machine pass no proxy
            event_hooks={"response": [_keep_location]},
            verify=ssl.create_default_context(),  # a service of its own certificates: SSL_CERT_FILE
        )

    def __enter__(self) -> LabelClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._http.close()

    def stop(self) -> None:
        """Repeat no request from now on; requests that were sent may still be answered."""
        self._stopped.set()

    def info(self) -> wire.ServiceInfo:
        """Ask the service about its model, its limits and the kind of samples that it takes.

        Raises:
            ServiceUnavailableError: the service cannot be reached, or could not answer in time.
            RefusedError: the service refuses the key, is not a label service, or signs with another key.
        """
        # Short patience: at the first contact a wrong address is likelier than a service in trouble.
        info = self._request(wire.INFO_PATH, wire.ServiceInfo, None, min(self.patience, 20.0))
        if self.signer is not None and self.signer.lower() != info.signer:
            raise RefusedError(
                f"{self.url} signs its receipts with the key {info.signer}, not with the key that you named: "
                "ask the provider which key is right"
            )
        return info

    def ask(self, body: Body, count: int) -> wire.LabelAnswer:
        """Ask for the labels of ``count`` samples; samples that cannot be used get no label."""
        answer = self._request(wire.LABELS_PATH, wire.LabelAnswer, body, self.patience)
        if len(answer.labels) != count:
            raise RefusedError(f"{self.url} gave {len(answer.labels)} labels for {count} samples")
        return answer

    def send_calibration(self, body: Body, count: int) -> wire.CalibrationAnswer:
        """Let the service subtract the mean of ``count`` samples from all samples of the key, from now on.

        The arguments and the errors are those of :meth:`ask`; nothing is charged.
        """
        answer = self._request(wire.CALIBRATION_PATH, wire.CalibrationAnswer, body, self.patience)
        if any(sample.position >= count for sample in answer.unusable):
            raise RefusedError(f"{self.url} refused samples that were not in the request: tell the provider")
        return answer

    def _request(self, path: str, form: type[_Answer], body: Body | None, patience: float) -> _Answer:
        if self._http.is_closed:
            raise InputError("this client is closed: make another one")
        reply = self._send(path, body, patience)
        if reply.status == 429 and body is not None:
            raise OverBudgetError
        if reply.status != 200:
            kind = ServiceUnavailableError if reply.status >= 500 else RefusedError
            raise kind(self._explain(reply))
        try:
            return form.model_validate_json(reply.body)
        except ValidationError as error:
            raise RefusedError(
                f"the answer of {self.url} does not have the agreed form, and is refused "
                f"({first_problem(error)})"
            ) from None

    # Not the library tenacity: when `stop` ended one of its waits, it would send the request once more.
    def _send(self, path: str, body: Body | None, patience: float) -> _Reply:
        deadline, usual_wait = time.monotonic() + patience, self.first_wait
        while True:
            asked_wait = None
            try:
                reply = _within(deadline, lambda: self._send_once(path, body))
            except httpx.TransportError as error:
                trouble = f"{self.url} cannot be reached ({shown(str(error)) or type(error).__name__})"
                if "CERTIFICATE" in str(error):
                    raise ServiceUnavailableError(trouble) from None
            else:
                asked_wait = _read_retry_after(reply.headers)
                # A proxy says 429 as well, of its own bounds, and not in the form of a problem.
                over_budget = reply.status == 429 and asked_wait is None and _read_problem(reply) is not None
                if reply.status not in _RETRIED or over_budget:
                    return reply
                trouble = self._explain(reply)
            # A random part, so that clients which were turned away together do not come back together.
            if asked_wait is None:
                wait = random.uniform(0.5, 1.0) * min(_LONGEST_WAIT, usual_wait)
            else:
                wait = asked_wait + random.uniform(0.0, 0.5) * self.first_wait
            if time.monotonic() + wait > deadline:
                raise ServiceUnavailableError(f"{trouble}; try again later")
            if self._stopped.wait(wait):
                raise ServiceUnavailableError(trouble)
            usual_wait *= 2

    def _send_once(self, path: str, body: Body | None) -> _Reply:
        method = "GET" if body is None else "POST"
        headers = {} if body is None else {"Content-Type": body.content_type}
        content = None if body is None else body.content
        with self._http.stream(method, self.url + path, content=content, headers=headers) as response:
            # Neither unpacked nor read without end: an answer of integers is short.
            received = bytearray()
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > _MOST_ANSWER_BYTES:
                    raise RefusedError(f"{self.url} sends too long an answer: is it a label service?")
            return _Reply(response.status_code, response.headers, bytes(received))

    def _explain(self, reply: _Reply) -> str:
        problem = _read_problem(reply)
        if problem is not None:
            missing = reply.status == 401 and self.key is None
            hint = " (environment variable UCDS_KEY, or `key`)" if missing else ""
            return f"{self.url} answers {reply.status}: {shown(problem.detail)}{hint}"
        if 300 <= reply.status < 400:
            place = shown(reply.headers.get(_LOCATION, "nowhere"))
            return f"{self.url} redirects to {place}: give that address instead, if you trust it"
        return f"{self.url} answers {reply.status}: is that the address of a label service?"


def _within(deadline: float, work: Callable[[], _Reply]) -> _Reply:
    """Return the result of a request, and wait for it no longer than until a time of the monotonic clock."""
    # The limits of the HTTP library hold for each byte: an answer that drips could go on for days. Such a
    # request is left to its own thread, which ends with the connection.
    outcome: Future[_Reply] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised again in the thread that waits, whatever it is
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result(timeout=max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        raise httpx.ReadTimeout("its answer takes too long") from None


def _keep_location(response: httpx.Response) -> None:
    """Put a redirect's address aside: else httpx would prepare a request for it, though none is sent."""
    for place in response.headers.get_list("Location"):
        response.headers[_LOCATION] = place
    response.headers.pop("Location", None)


def _authorization(key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("the key is not one line of plain letters and digits: copy it again")
    return {"Authorization": f"Bearer {key}"}


def _read_problem(reply: _Reply) -> wire.Problem | None:
    with contextlib.suppress(ValidationError):
        return wire.Problem.model_validate_json(reply.body)
    return None


def _check_url(url: str) -> bool:
    """Refuse an address that cannot or should not be used; return whether it names this machine."""
    parts = _parts_of(url)
    if parts is None or parts.query or parts.fragment:
        named = "this" if "@" in url else repr(url)  # what stands before an "@" may be a password
        raise InputError(f"{named} is not the address of a service; write it like https://labels.example.org")
    if parts.username is not None:
        raise InputError("the address must hold no user name or password: give the key instead")
    local = parts.hostname == "localhost"
    with contextlib.suppress(ValueError):
        local = ipaddress.ip_address(parts.hostname or "").is_loopback
    if parts.scheme == "http" and not local:
        raise InputError(
            f"{url} is not encrypted, so others could read the key and the samples on the way: use https"
        )
    return local


def _parts_of(url: str) -> SplitResult | None:
    """Return the parts of a usable address; ``None`` for any other text."""
    try:
        parts, parsed = urlsplit(url), httpx.URL(url)
        # Only looked at, because each finds a fault that nothing else finds before the first request: a port
        # beyond 65535, an international name of a wrong form, and a part of a name that is empty or too long.
        _ = parts.port, parsed.host, parsed.raw_host.decode("ascii").encode("idna")
    except (ValueError, httpx.InvalidURL):
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def _read_retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds that the service asks the client to wait; ``None`` if it names none, or a date."""
    text = headers.get("Retry-After", "").strip()
    return float(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
