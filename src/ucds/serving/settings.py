"""Limits of the service. The defaults suit one small machine; each is an option of `ucds serve`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ucds.data.ahead import processors
from ucds.data.decode import COMMON_FORMATS, FORMATS
from ucds.errors import InputError

MIB = 2**20
_MAY_BE_ZERO = ("max_wait_seconds", "failure_seconds", "decode_workers")


@dataclass(frozen=True)
class Limits:
    """Bounds on one request, and on the work that the service takes on at once.

    Attributes:
        max_batch: samples in one request.
        max_image_bytes: bytes of one image file.
        max_image_pixels: pixels of one image, checked in its header before a pixel is decoded.
        max_request_bytes: bytes of one request body, counted as they arrive.
        formats: formats of images that are read, by Pillow's names.
        decode_seconds: processor time for one image; four times as long by the clock.
        decode_memory_bytes: memory that a decoding process may take beyond that of its start.
        decode_workers: processes that decode images; one more than processors if 0.
        waste_seconds: seconds a minute that one client may cause for images that cannot be used.
        max_requests: requests for labels in work at once; further ones are told to come again.
        max_body_bytes: bytes of all request bodies held at once.
        max_queue: samples accepted but not yet answered.
        max_connections: open connections; the one that is idle for longest makes room for a new one.
        client_share: share of requests, bodies, queue and connections that one client may hold. A client is a
            key; for connections and where there are no keys, an address, or of IPv6 a network of 64 bits.
        max_header_bytes: bytes of a request's first line and headers together.
        header_seconds: time for a client to send a request's headers; before that, as much for TLS.
        body_seconds: time for a client to send a request's body.
        keep_alive_seconds: time after which an idle connection is closed.
        shutdown_seconds: time for requests in work when the service is asked to stop.
        max_wait_seconds: longest time that a batch of the model waits to be filled.
        failure_seconds: longest delay of the answer to a wrong key; 0 delays nothing.

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
    max_connections: int = 512
    client_share: float = 0.5
    max_header_bytes: int = 16 * 1024
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    keep_alive_seconds: float = 30.0
    shutdown_seconds: float = 10.0
    max_wait_seconds: float = 0.005
    failure_seconds: float = 2.0

    def for_one_of(self, workers: int) -> Limits:
        """Return the limits of one of several processes, which share the processes that decode."""
        decoding = self.decode_workers or processors() + 1
        return replace(self, decode_workers=max(1, -(-decoding // workers)))

    def for_one(self, total: int, least: int = 1) -> int:
        """Return how much of an amount one client may hold, and at least so much that it can ask at all."""
        return max(least, int(self.client_share * total))

    def __post_init__(self) -> None:
        """Refuse limits under which no request could ever be answered."""
        for name, value in vars(self).items():
            if name == "formats":
                continue
            if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
                raise InputError(f"{name} must be positive, not {value}")
        unknown = sorted(set(self.formats) - set(FORMATS))
        if unknown or not self.formats:
            raise InputError(
                f"images can be of the formats {', '.join(FORMATS)}, not {', '.join(unknown) or 'none'}"
            )
        if self.client_share > 1:
            raise InputError(f"a client's share is at most 1, not {self.client_share:g}")
        if self.max_connections <= self.max_requests:
            raise InputError(
                "max_connections must be more than max_requests, so that the service can be watched"
            )
        if self.max_queue < self.max_batch:
            raise InputError(f"a queue of {self.max_queue} has no room for a request of {self.max_batch}")
        if self.max_body_bytes < self.max_request_bytes:
            raise InputError("max_body_bytes must be at least max_request_bytes")
