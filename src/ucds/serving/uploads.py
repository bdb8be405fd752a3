"""Takes the samples out of a request's body, in memory only, because they may be images of patients."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ucds.labels.wire import IMAGES_FIELD
from ucds.serving.problems import Refusal

_BOUNDARY = re.compile(r'(?i);[ \t]*boundary=(?:"([^"]+)"|([^ \t;"]+))')
_LONGEST_PART_HEADER = 4096
_IS_IMAGE = re.compile(
    rb"(?i)\r\ncontent-disposition *: *form-data *;(?=[^\r\n]*\bfilename\*?=)"
    rb'[^\r\n]*\bname="?%s"? *[;\r]' % IMAGES_FIELD.encode()
)
_LONGEST_HEADER = 256  # of an array of two dimensions NumPy writes 128 bytes
_HEADER = re.compile(
    rb"\{(?=.*'descr' *: *'([<>|=]\w+)' *[,}])"
    rb"(?=.*'fortran_order' *: *(True|False) *[,}])"
    rb"(?=.*'shape' *: *\((\d*(?:, *\d+)*),? *\) *[,}])"
    rb"[^{}:]*(?::[^{}:]*){3}\}"  # and nothing else
)


def read_images(body: bytes | bytearray, content_type: str, most: int) -> list[memoryview]:
    """Return the files of a multipart body as parts of it, without copies; refuse more than ``most``.

    No library does this here: maintained ones search for the boundary step by step in Python, which takes a
    third of a second for 16 MiB, and write long files to a temporary folder.
    """
    found = _BOUNDARY.search(content_type)
    delimiter = b"\r\n--" + (found[1] or found[2] if found else "").encode("latin-1", "replace")
    if found is None or not body.startswith(delimiter[2:]):
        raise _malformed("The multipart body does not begin with its boundary")
    parts, start = list[tuple[int, int]](), len(delimiter) - 2
    while (end := body.find(delimiter, start)) >= 0:
        if len(parts) == most:
            raise _too_many(most)
        parts.append((start, end))
        start = end + len(delimiter)
    if not body.startswith(b"--", start):
        raise _malformed("The multipart body ends before its last boundary")
    if not parts:
        raise _malformed("The request holds no image")
    return [_file_in(body, *part) for part in parts]


def _file_in(body: bytes | bytearray, start: int, end: int) -> memoryview:
    blank = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_PART_HEADER))
    if blank < 0 or not _IS_IMAGE.search(body, start, blank + 2):
        raise _malformed(f"Every part of the body must be a file named '{IMAGES_FIELD}'")
    return memoryview(body)[blank + 4 : end]


def read_embeddings(data: bytes | bytearray, width: int, most: int) -> npt.NDArray[np.float32]:
    """Return the ``(n, width)`` rows of an ``.npy`` file, with minus zero replaced by zero.

    NumPy's own reader is not used, because it evaluates the file's header.
    """
    begin = 10 if data[6:7] == b"\1" else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if data[:6] != b"\x93NUMPY" or end > min(len(data), begin + _LONGEST_HEADER):
        raise _malformed("The body is not an .npy file")
    found = _HEADER.fullmatch(data[begin:end].replace(b'"', b"'").strip())
    if found is None:
        raise _malformed("The header of the .npy file is damaged")
    if found[1] not in (b"<f4", b"<f8"):
        raise _malformed("The array must hold numbers of type float32 or float64 (little-endian)")
    if found[2] != b"False":
        raise _malformed("The array must be stored row by row (numpy.ascontiguousarray)")
    shape = [int(size) for size in found[3].split(b",") if size]
    if len(shape) != 2 or shape[1] != width:
        raise _malformed(
            f"The array is of shape {tuple(shape)}, but this model takes rows of {width} numbers"
        )
    if shape[0] == 0:
        raise _malformed("The array has no rows")
    if shape[0] > most:
        raise _too_many(most)
    dtype = np.dtype(found[1].decode())
    if len(data) - end != shape[0] * width * dtype.itemsize:
        raise _malformed("The array is shorter or longer than its header says")
    values = np.frombuffer(data, dtype, offset=end).reshape(shape)
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: infinite, and not usable
        return np.asarray(values.astype(np.float32) + np.float32(0))  # one value, one content key


def _too_many(most: int) -> Refusal:
    return Refusal("too-large", f"A request may hold {most:,} samples at most; send fewer.")


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"{what}; see /openapi.json.")
