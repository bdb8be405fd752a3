"""Turns the samples of a request into rows for the model, or says which of them cannot be used."""

from __future__ import annotations

import asyncio
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ucds.data.content import content_key
from ucds.data.decode import MAX_PIXELS, ByteArray, UnusableImageError
from ucds.labels.wire import InvalidSample
from ucds.serving.decoders import DecodeBounds, Decoders, Decoding
from ucds.serving.problems import Refusal
from ucds.serving.settings import Limits
from ucds.serving.shares import Owner, Price, Turns

_MAGIC = b"\x93NUMPY"
_MAX_NPY_HEADER = 4096
_TYPES = ("<f4", "<f8")
# An entry of the header of an .npy file, which is a Python dictionary. Python's reader of literals is not
# used: in several threads at once, that of Python 3.11 raises SystemError now and then.
_NPY_ENTRY = re.compile(
    r"""\s*(['"])(?P<name>\w+)\1\s*:\s*"""
    r"""(?P<value>'[^'"]*'|"[^'"]*"|True|False|\((?:\s*\d{1,10}\s*,)*\s*(?:\d{1,10}\s*)?\)|\[[^][{}]*\])"""
    r"""\s*(?:,\s*|$)""",
    re.ASCII,
)
_SECONDS_PER_BYTE = 6e-9
"""Processor time in which the service itself receives and hashes a byte; measured with files of 16 MiB."""


class _EnoughError(Exception):
    """The owner has used up what it may waste; the rest of its images is not looked at."""


class ImageDecoder:
    """Decodes the images of requests in processes of their own, a fair turn for each owner.

    Args:
        size: side of the decoded squares in pixels.
        limits: bounds on one image, and number of processes.
        price: price of images that cannot be used.
    """

    def __init__(self, size: int, limits: Limits, price: Price) -> None:
        self._size, self._price = size, price
        # One process more than one owner may take: its slow images leave one for the others.
        workers = limits.decode_workers or (os.cpu_count() or 1) + 1
        self._turns = Turns(workers, max(1, workers - 1))
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

    async def decode(self, owner: Owner, files: list[bytes], positions: list[int]) -> ByteArray:
        """Decode the files of one request. If it is cancelled, so is the decoding, at once.

        Args:
            owner: owner of the request.
            files: contents of image files.
            positions: positions of these files in the request, for the refusal.

        Returns:
            ``(n, 3, size, size)`` uint8.

        Raises:
            Refusal: some files cannot be used (422, which names them).
        """
        rows = np.empty((len(files), 3, self._size, self._size), np.uint8)
        invalid: list[InvalidSample] = []

        async def decode_into(place: int) -> None:
            try:
                rows[place] = await self._decode_one(owner, files[place])
            except UnusableImageError as error:
                invalid.append(InvalidSample(position=positions[place], detail=error.reason))
                if self._price.exhausted(owner):
                    raise _EnoughError from None

        try:
            async with asyncio.TaskGroup() as group:
                for place in range(len(files)):
                    group.create_task(decode_into(place))
        except* _EnoughError:
            pass
        if invalid:
            detail = f"{len(invalid)} of the images cannot be used; leave them out, nothing was charged."
            invalid.sort(key=lambda sample: sample.position)
            raise Refusal("unusable-samples", detail, invalid=invalid)
        return rows

    async def _decode_one(self, owner: Owner, data: bytes) -> ByteArray:
        if not data:
            raise UnusableImageError("image", "empty file")
        async with self._turns.turn(owner):
            # Who sent unusable images of late does not compete with the others for processors.
            decoders = self._suspects if self._price.owes(owner) else self._decoders
            decoding, begun = Decoding(decoders, data, self._size), time.monotonic()
            try:
                return await _in_thread(self._pool, decoding)
            except (UnusableImageError, asyncio.CancelledError):
                # Who leaves before the end pays as well: the work was done.
                received = len(data) * _SECONDS_PER_BYTE
                self._price.charge(owner, time.monotonic() - begun + received)
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
    entries = _read_npy_entries(data[begin:end].decode("latin-1").strip())
    shape = tuple(int(size) for size in entries["shape"][1:-1].split(",") if size.strip())
    if max(shape, default=0) >= 2**31:
        raise _malformed("The header of the .npy file is damaged")
    if (descr := entries["descr"][1:-1]) not in _TYPES:
        raise _malformed("The array must hold numbers of type float32 or float64 (little-endian)")
    if entries["fortran_order"] != "False":
        raise _malformed("The array must be stored row by row (numpy.ascontiguousarray)")
    return np.dtype(descr), shape, end


def _read_npy_entries(header: str) -> dict[str, str]:
    """Return the words of the three entries by name, that of ``shape`` in round brackets."""
    entries: dict[str, str] = {}
    position, end = 1, len(header) - 1
    while position < end and (entry := _NPY_ENTRY.match(header, position, end)):
        entries[entry["name"]], position = entry["value"], entry.end()
    whole = header[:1] == "{" and header[-1:] == "}" and position == end
    if not whole or entries.keys() != {"descr", "fortran_order", "shape"} or entries["shape"][0] != "(":
        raise _malformed("The header of the .npy file is damaged")
    return entries


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}.")
