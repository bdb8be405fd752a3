"""Limits of the service. The defaults suit one small machine; each is an option of `ucds serve`."""

from __future__ import annotations

from dataclasses import dataclass

from ucds.errors import InputError

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds on one request, and on the work that the service takes on at once.

    Attributes:
        max_batch: samples in one request.
        max_image_bytes: bytes of one image file.
        max_image_pixels: pixels of one image, checked in its header before a pixel is decoded.
        max_request_bytes: bytes of one request body, counted as they arrive.
        max_requests: requests for labels in work at once; further ones are told to come again.
        max_body_bytes: bytes of all request bodies held at once.
        max_queue: samples accepted but not yet answered.
        max_connections: open connections.
        max_header_bytes: bytes of a request's first line and headers together.
        header_seconds: time for a client to send a request's headers.
        body_seconds: time for a client to send a request's body.
        keep_alive_seconds: time after which an idle connection is closed.
        shutdown_seconds: time for requests in work when the service is asked to stop.
        max_wait_seconds: longest time that a batch of the model waits to be filled.
        decode_threads: threads that decode images; one for each processor if 0.

    Raises:
        InputError: a limit is not positive, or no request could ever be answered.
    """

    max_batch: int = 256
    max_image_bytes: int = 16 * MIB
    max_image_pixels: int = 2**25
    max_request_bytes: int = 64 * MIB
    max_requests: int = 128
    max_body_bytes: int = 512 * MIB
    max_queue: int = 1024
    max_connections: int = 512
    max_header_bytes: int = 16 * 1024
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    keep_alive_seconds: float = 30.0
    shutdown_seconds: float = 60.0
    max_wait_seconds: float = 0.005
    decode_threads: int = 0

    def __post_init__(self) -> None:
        """Refuse limits under which no request could ever be answered."""
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name not in ("max_wait_seconds", "decode_threads")):
                raise InputError(f"{name} must be positive, not {value}")
        if self.max_queue < self.max_batch:
            raise InputError(f"a queue of {self.max_queue} has no room for a request of {self.max_batch}")
        if self.max_body_bytes < self.max_request_bytes:
            raise InputError("max_body_bytes must be at least max_request_bytes")
