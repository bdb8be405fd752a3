"""Takes the files out of a multipart body, which stays in memory: they may be images of patients."""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from ucds.labels.wire import IMAGES_FIELD
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal


def parse_images(body: bytes, content_type: str, limits: Limits) -> list[bytes]:
    """Return the files of a multipart body, in order.

    Args:
        body: whole body.
        content_type: value of the header, which names the boundary of the parts.
        limits: most files.

    Raises:
        Refusal: there are too many files (413), or the body is not what it should be (422).
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not boundary:
        raise _malformed("The multipart body has no boundary")
    parts = _Parts(limits.max_batch)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_header_begin": parts.begin_header,
                "on_header_field": parts.add_name,
                "on_header_value": parts.add_value,
                "on_header_end": parts.end_header,
                "on_headers_finished": parts.begin_file,
                "on_part_data": parts.add_data,
            },
        )
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise _malformed("The multipart body is damaged") from None
    if parser.state is not MultipartState.END:
        raise _malformed("The multipart body ends before its last boundary")
    if not parts.files:
        raise _malformed("The request holds no image")
    return [bytes(file) for file in parts.files]


class _Parts:
    """Gathers the parts of one multipart body, and refuses what is no image."""

    def __init__(self, most: int) -> None:
        self.files: list[bytearray] = []
        self._most = most
        self._name, self._value, self._disposition = bytearray(), bytearray(), b""

    def begin_header(self) -> None:
        self._name, self._value = bytearray(), bytearray()

    def add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = bytes(self._value)

    def begin_file(self) -> None:
        name = parse_options_header(self._disposition)[1].get(b"name")
        self._disposition = b""  # the next part has headers of its own
        if name != IMAGES_FIELD.encode():
            raise _malformed(f"Every part of the body must be a file named '{IMAGES_FIELD}'")
        if len(self.files) >= self._most:
            raise Refusal("too-large", f"A request may hold {self._most:,} samples at most; send fewer.")
        self.files.append(bytearray())

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self.files[-1] += data[start:end]


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}; see /openapi.json.")
