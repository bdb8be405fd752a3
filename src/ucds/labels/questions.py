"""What a client asks about: image files as they are, or rows of an array of embeddings.

Only the content of a sample is sent. File names are not: the parts of a request are numbered.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np

from ucds.data.content import FloatArray
from ucds.data.decode import UnusableImageError, read_image_bytes
from ucds.data.folders import scan_folder
from ucds.errors import InputError
from ucds.labels.wire import IMAGES_FIELD, NPY_TYPE, ServiceInfo

MOST_OVERHEAD = 256
"""Bytes that a request, and each sample in it, may need beyond the samples' contents."""


@dataclass(frozen=True)
class Body:
    """The body of one request."""

    content: bytes
    content_type: str


class Questions(Protocol):
    """Samples that a service can be asked about, by position."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Stable ids of the samples, the same as ``ucds label`` gives them."""

    def read(self, position: int) -> bytes:
        """Read a sample's content.

        Raises:
            UnusableImageError: the sample cannot be read.
        """

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build one request for several samples."""

    def check_accepted(self, info: ServiceInfo) -> None:
        """Make sure that the service takes this kind of samples.

        Raises:
            InputError: the service takes another kind of samples.
        """


@dataclass(frozen=True)
class ImageQuestions:
    """Image files, sent byte for byte: the provider charges by content.

    Attributes:
        root: folder that was scanned.
        paths: paths of the files, relative to the root.
        ids: ids of the samples.
    """

    root: Path
    paths: tuple[str, ...]
    ids: tuple[str, ...]

    def read(self, position: int) -> bytes:
        """Read the bytes of the file."""
        return read_image_bytes(self.root / self.paths[position])

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build a form with one file part for each image."""
        files = [
            (IMAGES_FIELD, (str(number), content, "application/octet-stream"))
            for number, content in enumerate(contents)
        ]
        request = httpx.Request("POST", "http://service", files=files)
        return Body(request.read(), request.headers["Content-Type"])

    def check_accepted(self, info: ServiceInfo) -> None:
        """Make sure that the service takes images; see :class:`Questions`."""
        if info.accepts != "images":
            raise InputError(
                f"model {info.model!r} answers about embeddings of width {info.width} (.npy or .npz), "
                "not about images"
            )


@dataclass(frozen=True)
class VectorQuestions:
    """Embeddings.

    Attributes:
        array: ``(n, d)`` fp32.
        ids: ids of the rows.
    """

    array: FloatArray
    ids: tuple[str, ...]

    def read(self, position: int) -> bytes:
        """Return the bytes of the row."""
        return np.ascontiguousarray(self.array[position], dtype="<f4").tobytes()

    def body(self, contents: Sequence[bytes]) -> Body:
        """Build an array in NumPy's format."""
        rows = np.frombuffer(b"".join(contents), dtype="<f4").reshape(len(contents), -1)
        file = io.BytesIO()
        np.save(file, rows, allow_pickle=False)
        return Body(file.getvalue(), NPY_TYPE)

    def check_accepted(self, info: ServiceInfo) -> None:
        """Make sure that the service takes embeddings of this width; see :class:`Questions`."""
        if info.accepts != "embeddings":
            raise InputError(f"model {info.model!r} answers about images, not about embeddings")
        if info.width != self.array.shape[1]:
            raise InputError(
                f"model {info.model!r} takes embeddings of width {info.width}, not {self.array.shape[1]}"
            )


def open_questions(path: Path) -> Questions:
    """Open the images of a folder, or the embeddings of a file; no image is decoded.

    Raises:
        InputError: the path cannot be used, or holds several arrays.
    """
    if path.suffix.lower() not in (".npy", ".npz"):
        scan = scan_folder(path)
        return ImageQuestions(scan.root, scan.paths, scan.ids)
    from ucds.data.vectors import load_vectors  # it brings torch, which asking about images does not need

    vectors = load_vectors(path)
    if len(vectors.domain_names) > 1:
        raise InputError(f"{path} holds {len(vectors.domain_names)} arrays, but a target is one domain")
    return VectorQuestions(vectors.array, vectors.ids)


def check_size(content: bytes, name: str, info: ServiceInfo) -> None:
    """Make sure that the service would not refuse a sample for its length.

    Raises:
        UnusableImageError: the sample is longer than the service allows.
    """
    most = min(info.max_image_bytes, info.max_request_bytes - 2 * MOST_OVERHEAD)
    if info.accepts == "images" and len(content) > most:
        raise UnusableImageError(
            name, f"too large for the service ({len(content):,} bytes; it takes {most:,})"
        )
