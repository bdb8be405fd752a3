"""Reads request bodies that may be too long, too slow, or not what they say they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from ucds.labels.wire import IMAGES_FIELD
from ucds.serving.problems import Refusal
from ucds.serving.settings import Limits

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


class ByteGate:
    """Bounds the bytes of all request bodies held at once; used on the event loop only."""

    def __init__(self, limit: int) -> None:
        self._free = limit

    @contextmanager
    def entry(self) -> Iterator[Callable[[int], None]]:
        """A function that takes bytes from the bound; they are given back at the end.

        Raises:
            Refusal: 503, from the function, when there are none left.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > self._free:
                raise Refusal("busy", "The service holds all the data it can; come again.", retry_after=1)
            self._free -= count
            taken += count

        try:
            yield take
        finally:
            self._free += taken


async def read_body(request: Request, limits: Limits, take: Callable[[int], None]) -> AsyncIterator[bytes]:
    """The body in pieces, within its limits of length and time.

    What the header says of the length is used to refuse early, and never trusted.

    Raises:
        Refusal: 413 when it is too long, 408 when it comes too slowly.
    """
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > limits.max_request_bytes:
        raise _too_long(limits)
    read = 0
    deadline = asyncio.get_running_loop().time() + limits.body_seconds
    pieces = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            detail = f"The body did not arrive within {limits.body_seconds:g} seconds; send fewer samples."
            raise Refusal("too-slow", detail) from None
        except ClientDisconnect:
            raise Refusal("malformed", "The connection ended before the body did.") from None
        read += len(piece)
        if read > limits.max_request_bytes:
            raise _too_long(limits)
        take(len(piece))
        yield piece


def _too_long(limits: Limits) -> Refusal:
    detail = f"A request may hold {limits.max_request_bytes:,} bytes at most; send fewer samples."
    return Refusal("too-large", detail)


async def read_images(request: Request, limits: Limits, pieces: AsyncIterator[bytes]) -> list[bytes]:
    """The files of a multipart body, in order.

    Raises:
        Refusal: 413 for too many or too long files, 422 for a body that is not what it should be.
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise _malformed("The multipart body has no boundary")
    collector = _Collector(limits)
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        async for piece in pieces:
            parser.write(piece)
        parser.finalize()
    except FormParserError:
        raise _malformed("The multipart body is damaged") from None
    if not collector.finished:
        raise _malformed("The multipart body ends before its last boundary")
    if not collector.files:
        raise _malformed("The request holds no image")
    return [bytes(file) for file in collector.files]


class _Collector:
    """Gathers the parts of one multipart body, and refuses as soon as one is too much."""

    def __init__(self, limits: Limits) -> None:
        self.files: list[bytearray] = []
        self.finished = False
        self._limits = limits
        self._name, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._headers.clear,
            "on_header_begin": self._begin_header,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_file,
            "on_part_data": self._add,
            "on_end": self._finish,
        }

    def _begin_header(self) -> None:
        self._name.clear()
        self._value.clear()

    def _end_header(self) -> None:
        self._headers[bytes(self._name).lower()] = bytes(self._value)

    def _begin_file(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        if options.get(b"name") != IMAGES_FIELD.encode():
            raise _malformed(f"Every part of the body must be a file named '{IMAGES_FIELD}'")
        if len(self.files) >= self._limits.max_batch:
            detail = f"A request may hold {self._limits.max_batch:,} samples at most; send fewer."
            raise Refusal("too-large", detail)
        self.files.append(bytearray())

    def _add(self, data: bytes, start: int, end: int) -> None:
        file = self.files[-1]
        if len(file) + end - start > self._limits.max_image_bytes:
            detail = (
                f"The image at position {len(self.files) - 1} is longer than "
                f"{self._limits.max_image_bytes:,} bytes; make it smaller."
            )
            raise Refusal("too-large", detail)
        file += data[start:end]

    def _finish(self) -> None:
        self.finished = True


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}; see /openapi.json.")
