"""Turns the samples of a request into rows for the model, or says which of them cannot be used."""

from __future__ import annotations

import ast
import asyncio
import os
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ucds.data.content import content_key
from ucds.data.decode import MAX_PIXELS, ByteArray, UnusableImageError
from ucds.serving.bounds import Waste
from ucds.serving.decoders import DecodeBounds, Decoders, Decoding, DelayedImageError
from ucds.serving.limits import Limits
from ucds.serving.problems import Refusal

Samples = list[bytes] | npt.NDArray[np.float32]

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 256  # of an array of two dimensions NumPy writes 128 bytes
_TYPES = ("<f4", "<f8")
_SECONDS_PER_BYTE = 6e-9
"""Processor time in which the service itself receives and hashes a byte; measured with files of 16 MiB."""
# In several threads at once, Python 3.11's reader of literals raises SystemError now and then.
_reading_literals = threading.Lock()


class ImageDecoder:
    """Decodes the images of requests in processes of their own, a fair turn for each key.

    Args:
        size: side of the decoded squares in pixels.
        limits: bounds on one image, and number of processes.
        waste: debts for images that cannot be used.
    """

    def __init__(self, size: int, limits: Limits, waste: Waste) -> None:
        self._size, self._waste, self._most_bytes = size, waste, limits.max_image_bytes
        # One process more than one key may take: its slow images leave one for the others.
        workers = limits.decode_workers or (os.cpu_count() or 1) + 1
        self._places = asyncio.Semaphore(workers)
        self._turns = defaultdict[int, asyncio.Semaphore](lambda: asyncio.Semaphore(max(1, workers - 1)))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        bounds = DecodeBounds(
            seconds=limits.decode_seconds,
            memory_bytes=limits.decode_memory_bytes,
            max_pixels=min(limits.max_image_pixels, MAX_PIXELS),
            formats=limits.formats,
            niceness=10,
        )
        self._decoders = Decoders(bounds)
        self._suspects = Decoders(replace(bounds, give_way_at_once=True))

    async def decode(self, key: int, files: list[bytes], unusable: dict[int, str]) -> ByteArray:
        """Decode the files of one request. If it is cancelled, so is the decoding, at once.

        Args:
            key: number of the key that asks.
            files: contents of image files.
            unusable: receives the reason of each file that cannot be used, by its position, before anything
                is raised.

        Returns:
            ``(n, 3, size, size)`` uint8; rows of unusable files are left as they are.

        Raises:
            Refusal: an image was not decoded in time by the clock (503), or the key has used up what it may
                waste (429).
        """
        rows = np.zeros((len(files), 3, self._size, self._size), np.uint8)

        async def decode_into(place: int) -> None:
            try:
                rows[place] = await self._decode_one(key, files[place])
            except DelayedImageError:
                detail = "The images could not be decoded in time; come again."
                raise Refusal("busy", detail, retry_after=5) from None
            except UnusableImageError as error:
                unusable[place] = error.reason
                if self._waste.is_refused(key):
                    raise self._waste.refusal(key) from None

        try:
            async with asyncio.TaskGroup() as group:
                for place in range(len(files)):
                    group.create_task(decode_into(place))
        except BaseExceptionGroup as several:
            if refusals := several.subgroup(Refusal):
                raise refusals.exceptions[0] from None
            raise
        return rows

    async def _decode_one(self, key: int, data: bytes) -> ByteArray:
        if not data:
            raise UnusableImageError("image", "empty file")
        if len(data) > self._most_bytes:
            raise UnusableImageError("image", f"longer than {self._most_bytes:,} bytes")
        async with self._turns[key], self._places:
            # Who wasted work of late does not compete with the others for processors.
            decoders = self._suspects if self._waste.debt(key) else self._decoders
            decoding = Decoding(decoders, data, self._size)
            try:
                return await _in_thread(self._pool, decoding)
            except UnusableImageError:
                self._waste.charge(key, decoding.seconds + cost_of_bytes(len(data)))
                raise

    def close(self) -> None:
        """Stop the processes and threads."""
        self._pool.shutdown(cancel_futures=True)
        self._decoders.close()
        self._suspects.close()


async def _in_thread(pool: ThreadPoolExecutor, decoding: Decoding) -> ByteArray:
    future = asyncio.get_running_loop().run_in_executor(pool, decoding.run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        decoding.cancel()
        raise


def cost_of_bytes(count: int) -> float:
    """Return the seconds in which the service itself receives and hashes some bytes."""
    return count * _SECONDS_PER_BYTE


def decode_embeddings(data: bytes, width: int, limits: Limits) -> npt.NDArray[np.float32]:
    """Read the rows of an ``.npy`` file without NumPy's own reader, which does far more than is safe.

    Returns:
        ``(n, width)`` float32, in which minus zero has become zero.

    Raises:
        Refusal: too many rows (413), or anything but a plain array of the right width (422).
    """
    dtype, rows, columns, start = _read_npy_header(data)
    if columns != width:
        raise _malformed(f"The array has rows of {columns} numbers, but this model takes {width}")
    if rows == 0:
        raise _malformed("The array has no rows")
    if rows > limits.max_batch:
        raise Refusal("too-large", f"A request may hold {limits.max_batch:,} samples at most; send fewer.")
    if len(data) - start != rows * columns * np.dtype(dtype).itemsize:
        raise _malformed("The array is shorter or longer than its header says")
    values = np.frombuffer(data, dtype, offset=start).reshape(rows, columns)
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite, and not usable
        return np.asarray(values.astype(np.float32) + np.float32(0))  # one value, one content key


def content_keys(samples: Samples) -> list[bytes]:
    """Return one key for each file as it was sent, or for each float32 row; equal contents, equal keys."""
    return [content_key(sample if isinstance(sample, bytes) else sample.tobytes()) for sample in samples]


def _read_npy_header(data: bytes) -> tuple[str, int, int, int]:
    """Return the type, the rows, the columns, and where the numbers begin."""
    if data[:6] != _MAGIC or data[6:7] not in (b"\1", b"\2", b"\3"):
        raise _malformed("The body is not an .npy file")
    begin = 10 if data[6] == 1 else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), begin + _LONGEST_HEADER):
        raise _malformed("The header of the .npy file is too long")
    try:
        with _reading_literals:
            found = ast.literal_eval(data[begin:end].decode("latin-1").strip())
        descr, by_columns, shape = (found.pop(name) for name in ("descr", "fortran_order", "shape"))
        sizes = [size for size in shape if type(size) is int and 0 <= size < 2**31]
        is_plain = (
            not found and type(by_columns) is bool and type(shape) is tuple and len(sizes) == len(shape)
        )
    except (ValueError, SyntaxError, TypeError, KeyError, AttributeError, MemoryError, RecursionError):
        is_plain = False
    if not is_plain:
        raise _malformed("The header of the .npy file is damaged")
    if len(shape) != 2:
        raise _malformed(f"The array has {len(shape)} dimensions, but this model takes two")
    if descr not in _TYPES:
        raise _malformed("The array must hold numbers of type float32 or float64 (little-endian)")
    if by_columns:
        raise _malformed("The array must be stored row by row (numpy.ascontiguousarray)")
    return descr, shape[0], shape[1], end


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}.")
