"""Limits of the service. The defaults suit a small machine; ``ucds serve --limit NAME=VALUE`` sets one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ucds.arguments import require_fields
from ucds.data.decode import COMMON_FORMATS, FORMATS
from ucds.errors import InputError, brief

MIB = 2**20
SERVED_FORMATS = tuple(name for name in FORMATS if name != "HEIF")
"""Formats that a confined process decodes; the library of HEIF starts a thread for each image."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one request, and on the work that the service accepts at a time.

    Attributes:
        max_batch: samples in one request.
        max_image_bytes: bytes of one image file.
        max_image_pixels: pixels of one image, checked in its header before a pixel is decoded.
        max_request_bytes: bytes of one request body.
        formats: formats of images that are read, by Pillow's names.
        decode_seconds: processor time for one image.
        decode_memory_bytes: memory that a decoding process may take beyond its memory at the start.
        decode_workers: number of processes that decode images; if 0, one more than there are processors.
        waste_seconds: seconds per minute that the service may spend on uncharged work for one key.
        max_requests: largest number of label requests in work at a time; further ones must try again later.
        max_body_bytes: bytes of all request bodies that are held at a time.
        max_queue: largest number of samples that are accepted but not yet answered.
        client_share: share of requests, bodies and queue that one key may hold.
        body_seconds: time for a client to send a request's body.
        shutdown_seconds: time for requests in work when the service is asked to stop.

    Raises:
        InputError: a limit is not positive, or no request could ever be answered.
    """

    max_batch: int = 256
    max_image_bytes: int = 16 * MIB
    max_image_pixels: int = 2**25
    max_request_bytes: int = 64 * MIB
    formats: tuple[str, ...] = COMMON_FORMATS
    decode_seconds: float = 5.0
    decode_memory_bytes: int = 512 * MIB
    decode_workers: int = 0
    waste_seconds: float = 10.0
    max_requests: int = 128
    max_body_bytes: int = 512 * MIB
    max_queue: int = 1024
    client_share: float = 0.5
    body_seconds: float = 60.0
    shutdown_seconds: float = 8.0

    @classmethod
    def parse(cls, settings: Iterable[str]) -> Limits:
        """Return limits, some of them set by texts such as ``max-batch=64`` or ``formats=JPEG,PNG``.

        Raises:
            InputError: a limit has an unknown name or an impossible value.
        """
        defaults: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        given: dict[str, Any] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            default = defaults.get(name.replace("-", "_"))
            if default is None:
                known = ", ".join(known.replace("_", "-") for known in defaults)
                raise InputError(f"there is no limit {brief(name)}: the limits are {known}")
            try:
                value = tuple(text.upper().split(",")) if isinstance(default, tuple) else type(default)(text)
            except ValueError:
                raise InputError(f"{brief(setting)} sets no limit: write {name}={default}") from None
            given[name.replace("-", "_")] = value
        return cls(**given)

    def for_one(self, total: int, least: int = 1) -> int:
        """Return how much of an amount one key may hold: at least enough for one request."""
        return max(least, int(self.client_share * total))

    def __post_init__(self) -> None:
        """Refuse limits under which no request could ever be answered."""
        require_fields(self)
        for name, value in vars(self).items():
            is_number = name != "formats" and (name, value) != ("decode_workers", 0)
            if is_number and not 0 < value < 2**53:
                raise InputError(f"{name} must be positive and below 2**53, not {value}")
        unknown = sorted(set(self.formats) - set(SERVED_FORMATS))
        if unknown or not self.formats:
            wrong = brief(unknown)[1:-1] or "none"
            raise InputError(f"images can be of the formats {', '.join(SERVED_FORMATS)}, not {wrong}")
        if self.client_share > 1:
            raise InputError(f"client_share must be at most 1, not {self.client_share:g}")
        if self.max_queue < self.max_batch:
            raise InputError(f"max_queue {self.max_queue} must be at least max_batch, {self.max_batch}")
        if self.max_body_bytes < self.max_request_bytes:
            raise InputError("max_body_bytes must be at least max_request_bytes")
