"""Turns the samples of a request into rows for the model, or says which of them cannot be used."""

from __future__ import annotations

import ast
import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ucds.data.content import content_key
from ucds.data.decode import MAX_PIXELS, ByteArray, UnusableImageError, decode_image
from ucds.labels.wire import InvalidSample
from ucds.serving.problems import Refusal
from ucds.serving.settings import Limits

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")  # as in `ucds.data.decode`
_MAGIC = b"\x93NUMPY"
_MAX_NPY_HEADER = 4096
_TYPES = ("<f4", "<f8")


class ImageDecoder:
    """Decodes image files in threads; the heavy parts of decoding run without the interpreter lock.

    Args:
        size: side of the decoded squares in pixels.
        max_pixels: most pixels of one image, checked in its header before a pixel is decoded.
        threads: number of threads.
    """

    def __init__(self, size: int, max_pixels: int, threads: int) -> None:
        self._size, self._max_pixels = size, min(max_pixels, MAX_PIXELS)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def decode(self, files: list[bytes], positions: list[int]) -> ByteArray:
        """Decode the files of one request.

        Args:
            files: contents of image files.
            positions: positions of these files in the request, for the refusal.

        Returns:
            ``(n, 3, size, size)`` uint8.

        Raises:
            Refusal: some files cannot be used (422, which names all of them).
        """
        rows = np.empty((len(files), 3, self._size, self._size), np.uint8)

        def decode_into(place: int) -> str | None:
            try:
                self._check_pixels(files[place])
                rows[place] = decode_image(files[place], self._size)
            except UnusableImageError as error:
                return error.reason
            return None

        reasons = list(self._pool.map(decode_into, range(len(files))))
        invalid = [
            InvalidSample(position=position, detail=reason)
            for position, reason in zip(positions, reasons, strict=True)
            if reason is not None
        ]
        if invalid:
            detail = f"{len(invalid)} of the images cannot be used; leave them out, nothing was charged."
            raise Refusal("unusable-samples", detail, invalid=invalid)
        return rows

    def _check_pixels(self, data: bytes) -> None:
        if not data:
            raise UnusableImageError("image", "empty file")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            width = height = self._max_pixels
        except Exception:
            return  # `decode_image` finds the same fault, and words it
        if width * height > self._max_pixels:
            detail = f"too many pixels (over {self._max_pixels / 1e6:.0f} million)"
            raise UnusableImageError("image", detail)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)


def decode_embeddings(data: bytes, width: int, limits: Limits) -> npt.NDArray[np.float32]:
    """Read the rows of an ``.npy`` file without NumPy's own reader, which does far more than is safe.

    Returns:
        ``(n, width)`` float32, finite.

    Raises:
        Refusal: too many rows (413), or anything but a plain array of the right width (422).
    """
    dtype, shape, start = _read_npy_header(data)
    if len(shape) != 2 or shape[1] != width:
        text = f"({', '.join(map(str, shape))})"
        shown = text if len(text) < 40 else f"of {len(shape)} dimensions"
        raise _malformed(f"The array has shape {shown}, but this model takes (n, {width})")
    if shape[0] == 0:
        raise _malformed("The array has no rows")
    if shape[0] > limits.max_batch:
        detail = f"A request may hold {limits.max_batch:,} samples at most; send fewer."
        raise Refusal("too-large", detail)
    if len(data) - start != shape[0] * shape[1] * dtype.itemsize:
        raise _malformed("The array is shorter or longer than its header says")
    values = np.frombuffer(data, dtype, offset=start).reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite, found below
        rows = values.astype(np.float32) + np.float32(0)  # minus zero becomes zero: one value, one key
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(bad):
        invalid = [InvalidSample(position=int(i), detail="holds NaN or infinity") for i in bad]
        detail = f"{len(bad)} of the rows hold NaN or infinity; leave them out, nothing was charged."
        raise Refusal("unusable-samples", detail, invalid=invalid)
    return rows


def content_keys(samples: list[bytes] | npt.NDArray[np.float32]) -> list[bytes]:
    """Return one key for each file as it was sent, or for each float32 row; equal contents, equal keys."""
    return [content_key(sample if isinstance(sample, bytes) else sample.tobytes()) for sample in samples]


def _read_npy_header(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    if data[:6] != _MAGIC or data[6:7] not in (b"\1", b"\2", b"\3"):
        raise _malformed("The body is not an .npy file")
    begin = 10 if data[6] == 1 else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), begin + _MAX_NPY_HEADER):
        raise _malformed("The header of the .npy file is too long")
    try:
        header = ast.literal_eval(data[begin:end].decode("latin-1").strip())
        descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise _malformed("The header of the .npy file is damaged") from None
    if descr not in _TYPES:
        raise _malformed("The array must hold numbers of type float32 or float64 (little-endian)")
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise _malformed("The header of the .npy file is damaged")
    if fortran is not False:
        raise _malformed("The array must be stored row by row (numpy.ascontiguousarray)")
    return np.dtype(descr), shape, end


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}.")
