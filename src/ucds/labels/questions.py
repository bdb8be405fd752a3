"""What a client asks about: image files as they are, or rows of an array of embeddings.

Only the content of a sample is sent. File names are not: the parts of a request are numbered.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import numpy as np

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError
from ucds.data.folders import Scan
from ucds.data.image_files import read_image_bytes
from ucds.data.sources import Source, find_samples
from ucds.errors import InputError
from ucds.labels.wire import IMAGES_FIELD, NPY_TYPE, ServiceInfo
from ucds.math.arrays import FloatArray

if TYPE_CHECKING:
    from ucds.data.columns import Pictures
    from ucds.data.parts import Rows
    from ucds.data.samples import Samples

MOST_OVERHEAD = 256
"""Bytes that a request, and each sample in it, may need beyond the samples' contents."""


@dataclass(frozen=True)
class Body:
    """The body of one request."""

    content: bytes
    content_type: str


@dataclass(frozen=True)
class ImageQuestions:
    """Image files, not opened yet; they are sent byte for byte, for the provider charges by content."""

    files: Scan

    @property
    def ids(self) -> Sequence[str]:
        """Stable ids of the images, the same as ``ucds label`` gives them."""
        return self.files.ids

    def read(self, position: int) -> bytes:
        """Read the bytes of a file; :class:`UnusableImageError` where that cannot be done."""
        return read_image_bytes(self.files.file(position))

    def own_key(self, position: int, sent: bytes) -> bytes:
        """Return the key of what was sent: an image is sent as it is."""
        return sent

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build a form with one file part for each image."""
        return body_of_images(contents)

    def check_accepted(self, info: ServiceInfo) -> None:
        """Make sure that the service takes images."""
        if info.accepts != "images":
            raise InputError(
                f"model {info.model!r} answers about embeddings of width {info.width} (.npy or .npz), "
                "not about images"
            )


@dataclass(frozen=True)
class VectorQuestions:
    """Rows of embeddings, by the ids that ``ucds label`` gives them."""

    rows: Rows
    ids: Sequence[str]

    def read(self, position: int) -> bytes:
        """Return the bytes of the row.

        Minus zero is sent as zero. The service takes them for the same number, and signs what it took.
        """
        return (self._row(position) + np.float32(0)).tobytes()

    def own_key(self, position: int, sent: bytes) -> bytes:
        """Compute the key of the row as it is."""
        return content_key(self.rows.take(np.array([position])).tobytes())

    def _row(self, position: int) -> FloatArray:
        return np.asarray(self.rows.take(np.array([position]))[0], dtype="<f4")

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build an array in NumPy's format."""
        return body_of_rows(np.frombuffer(b"".join(contents), dtype="<f4").reshape(len(contents), -1))

    def check_accepted(self, info: ServiceInfo) -> None:
        """Make sure that the service takes embeddings of this width."""
        if info.accepts != "embeddings":
            raise InputError(f"model {info.model!r} answers about images, not about embeddings")
        if info.width != self.rows.shape[1]:
            raise InputError(
                f"model {info.model!r} takes embeddings of width {info.width}, not {self.rows.shape[1]}"
            )
        if self.rows.take(np.zeros(1, np.int64)).dtype != np.float32:
            raise InputError(
                "a service takes single precision, which blurs these rows, for they lie too far from zero: "
                "ask the provider to label them with ucds label"
            )


Questions = ImageQuestions | VectorQuestions
"""Samples that a service can be asked about, by position."""


def body_of_images(contents: Sequence[bytes]) -> Body:
    """Build a request for image files: a form with one part for each."""
    files = [
        (IMAGES_FIELD, (str(number), content, "application/octet-stream"))
        for number, content in enumerate(contents)
    ]
    request = httpx.Request("POST", "http://service", files=files)
    return Body(request.read(), request.headers["Content-Type"])


def body_of_rows(rows: FloatArray) -> Body:
    """Build a request for embeddings: ``(b, d)`` rows in NumPy's format."""
    file = io.BytesIO()
    np.save(file, rows, allow_pickle=False)
    return Body(file.getvalue(), NPY_TYPE)


def open_questions(source: Source) -> Questions:
    """Open image files or embeddings to ask about; no image is decoded.

    Args:
        source: samples of one domain, see :func:`ucds.data.sources.find_samples`.

    Raises:
        InputError: the samples cannot be used, or are pictures in memory.
    """
    return questions_about(find_samples(source, by_domain=False))


def questions_about(found: Scan | Samples | Pictures) -> Questions:
    """Return what a service is sent of samples."""
    if isinstance(found, Scan):
        return ImageQuestions(found)
    # These bring torch, which asking about images does not need.
    from ucds.data.features import FeatureFolder
    from ucds.data.images import ImageSamples
    from ucds.data.vectors import VectorSamples

    if isinstance(found, ImageSamples):
        return ImageQuestions(found.files)
    if isinstance(found, VectorSamples | FeatureFolder):
        return VectorQuestions(found.rows, found.ids)
    raise InputError("only image files and embeddings can be sent to a service")


def check_size(content: bytes, name: str, info: ServiceInfo) -> None:
    """Make sure that the service would not refuse a sample for its length."""
    most = min(info.max_image_bytes, info.max_request_bytes - 2 * MOST_OVERHEAD)
    if info.accepts == "images" and len(content) > most:
        raise UnusableImageError(
            name, f"too large for the service ({len(content):,} bytes; it takes {most:,})"
        )
