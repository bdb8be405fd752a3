"""Reads request bodies that may be too long, damaged, or not what their header says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header
from starlette.requests import ClientDisconnect, Request

from ucds.labels.wire import IMAGES_FIELD
from ucds.serving.problems import Refusal
from ucds.serving.settings import Limits

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


async def read_body(request: Request, limits: Limits, take: Callable[[int], None]) -> AsyncIterator[bytes]:
    """Yield the body in pieces, within its limit of length.

    The length in the header is used to refuse early, and never trusted. `take` receives the length of each
    piece.

    Raises:
        Refusal: the body is too long (413), or the connection ends before it (422).
    """
    announced, most, read = request.headers.get("content-length", ""), limits.max_request_bytes, 0
    too_long = Refusal("too-large", f"A request may hold {most:,} bytes at most; send fewer samples.")
    if announced.isascii() and announced.isdigit() and int(announced[:18]) > most:
        raise too_long
    try:
        async for piece in request.stream():
            read += len(piece)
            if read > most:
                raise too_long
            take(len(piece))
            yield piece
    except ClientDisconnect:
        raise Refusal("malformed", "The connection ended before the body did.") from None


async def read_images(request: Request, limits: Limits, pieces: AsyncIterator[bytes]) -> list[bytes]:
    """Return the files of a multipart body, in order.

    Raises:
        Refusal: too many or too long files (413), or a body that is not what it should be (422).
    """
    _, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise _malformed("The multipart body has no boundary")
    collector = _Collector(limits)
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        async for piece in pieces:
            # In a thread: a body of unfinished boundaries is parsed byte by byte.
            await asyncio.to_thread(parser.write, piece)
        parser.finalize()
    except FormParserError:
        raise _malformed("The multipart body is damaged") from None
    if parser.state is not MultipartState.END:
        raise _malformed("The multipart body ends before its last boundary")
    if not collector.files:
        raise _malformed("The request holds no image")
    return [bytes(file) for file in collector.files]


class _Collector:
    """Gathers the parts of one multipart body, and refuses as soon as one is too much."""

    def __init__(self, limits: Limits) -> None:
        self.files: list[bytearray] = []
        self._limits = limits
        self._name, self._value, self._disposition = bytearray(), bytearray(), b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_header_begin": self._begin_header,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_file,
            "on_part_data": self._add,
        }

    def _begin_header(self) -> None:
        self._name, self._value = bytearray(), bytearray()

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = bytes(self._value)

    def _begin_file(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._disposition = b""  # the next part has headers of its own
        if options.get(b"name") != IMAGES_FIELD.encode():
            raise _malformed(f"Every part of the body must be a file named '{IMAGES_FIELD}'")
        if len(self.files) >= self._limits.max_batch:
            detail = f"A request may hold {self._limits.max_batch:,} samples at most; send fewer."
            raise Refusal("too-large", detail)
        self.files.append(bytearray())

    def _add(self, data: bytes, start: int, end: int) -> None:
        file, most = self.files[-1], self._limits.max_image_bytes
        if len(file) + end - start > most:
            place = len(self.files) - 1
            detail = f"The image at position {place} is longer than {most:,} bytes; make it smaller."
            raise Refusal("too-large", detail)
        file += data[start:end]


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}; see /openapi.json.")
