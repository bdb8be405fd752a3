"""Questions of a client: image files without their metadata, or rows of an array of embeddings.

Only the content of a sample is sent. File names are not: the parts of a request are numbered.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import numpy as np

from ucds.data.content import content_key
from ucds.data.decode import UnusableImageError, without_metadata
from ucds.data.folders import Scan
from ucds.data.image_files import read_image_bytes
from ucds.data.sources import Source, find_samples
from ucds.errors import InputError
from ucds.labels.wire import IMAGES_FIELD, NPY_TYPE, ServiceInfo
from ucds.math.arrays import FloatArray

if TYPE_CHECKING:
    from ucds.data.columns import Pictures
    from ucds.data.samples import Samples

MOST_OVERHEAD = 256
"""Bytes that a request, and each sample in it, may need beyond the samples' contents."""


@dataclass(frozen=True)
class Body:
    """Body of one request."""

    content: bytes
    content_type: str


class Question(NamedTuple):
    """One sample: the content that is sent, and the key of the content that the client has."""

    content: bytes
    own_key: bytes


@dataclass(frozen=True)
class ImageQuestions:
    """Image files, not opened yet; their metadata are not sent, unless ``keep_metadata`` says so."""

    files: Scan
    keep_metadata: bool = False
    most_bytes: int | None = None  # that the service takes of an image, once it is known

    @property
    def ids(self) -> Sequence[str]:
        """Stable ids of the images, the same as ``ucds label`` gives them."""
        return self.files.ids

    def read(self, position: int) -> Question:
        """Read a file; :class:`UnusableImageError` where it is not an image, or too large for the service."""
        path = self.files.file(position)
        data = read_image_bytes(path)
        bare = without_metadata(data, path)
        sent, most = data if self.keep_metadata else bare, self.most_bytes
        if most is not None and len(sent) > most:
            reason = f"too large for the service ({len(sent):,} bytes; it takes {most:,})"
            raise UnusableImageError(path, reason)
        return Question(sent, content_key(data))

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build a form with one file part for each image."""
        return body_of_images(contents)

    def for_service(self, info: ServiceInfo) -> ImageQuestions:
        """Return the questions, once it is known that the service takes images."""
        if info.accepts != "images":
            raise InputError(
                f"model {info.provider!r} answers about embeddings of width {info.width} (.npy or .npz), "
                "not about images"
            )
        most = min(info.max_image_bytes, info.max_request_bytes - 2 * MOST_OVERHEAD)
        return replace(self, most_bytes=most)


@dataclass(frozen=True)
class VectorQuestions:
    """Rows of embeddings, by the ids that ``ucds label`` gives them."""

    samples: Samples

    @property
    def ids(self) -> Sequence[str]:
        """Stable ids of the rows."""
        return self.samples.ids

    def read(self, position: int) -> Question:
        """Read a row.

        Minus zero is sent as zero, because the service takes both for zero and signs that.
        """
        row = self.samples.read(np.array([position]))[0]
        sent = np.asarray(row, dtype="<f4") + np.float32(0)
        return Question(sent.tobytes(), content_key(row.tobytes()))

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build an array in NumPy's format."""
        return body_of_rows(np.frombuffer(b"".join(contents), dtype="<f4").reshape(len(contents), -1))

    def for_service(self, info: ServiceInfo) -> VectorQuestions:
        """Return the questions in the order of the service's columns, if it takes such embeddings."""
        from ucds.data.vectors import in_order

        if info.accepts != "embeddings":
            raise InputError(f"model {info.provider!r} answers about images, not about embeddings")
        samples = in_order(self.samples, info.columns, f"model {info.provider!r}")
        row = samples.read(np.zeros(1, np.int64))[0]
        if info.width != len(row):
            expected = f"embeddings of width {info.width}"
            raise InputError(f"model {info.provider!r} takes {expected}, not {len(row)}")
        if row.dtype != np.float32:
            raise InputError(
                "a service takes single precision, which blurs rows that are so far from zero: "
                "ask the provider to label them with ucds label"
            )
        return VectorQuestions(samples)


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


def open_questions(
    source: Source | Scan | Samples | Pictures, *, allow_outside: bool = False, keep_metadata: bool = False
) -> Questions:
    """Open image files or embeddings to ask about; no image is decoded.

    Image files may be sent only from below the folder that is named, or the folder of the list or table that
    names them, unless they are allowed outside; of a link it counts where it leads.
    """
    found = find_samples(source, by_domain=False)
    if isinstance(found, Scan):
        if not allow_outside:
            _refuse_outside(found)
        return ImageQuestions(found, keep_metadata)
    # Asking about images needs none of these.
    from ucds.data.features import FeatureFolder
    from ucds.data.images import ImageSamples
    from ucds.data.vectors import VectorSamples

    if isinstance(found, ImageSamples):
        return open_questions(found.files, allow_outside=allow_outside, keep_metadata=keep_metadata)
    if isinstance(found, VectorSamples | FeatureFolder):
        return VectorQuestions(found)
    raise InputError("only image files and embeddings can be sent to a service")


def _refuse_outside(files: Scan) -> None:
    """Make sure that no list, and no link in a folder, names a file elsewhere, such as a private one."""
    root = Path(os.path.realpath(files.root))
    places = map(files.file, range(len(files)))
    outside = [path for path in places if not Path(os.path.realpath(path)).is_relative_to(root)]
    if outside:
        raise InputError(
            f"{len(outside):,} of {len(files):,} files lie outside {root}, such as {outside[0]}: leave them "
            "out, or send them too by `allow_outside=True`"
        )
