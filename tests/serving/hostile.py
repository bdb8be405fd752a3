"""Requests that no honest client sends. Every one must be refused in words, and leave nothing behind."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
from serving_kit import MULTIPART, npy, picture, vector

Request = tuple[bytes, dict[str, str]]


def multipart(*contents: bytes, name: str = "images", end: bytes = b"--b--\r\n") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="i"\r\n\r\n'.encode()
    return b"".join(head + content + b"\r\n" for content in contents) + end


def chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def png(width: int, height: int, data: bytes, extra: bytes = b"") -> bytes:
    """A PNG file that says what it likes of its size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def bad_images() -> dict[str, bytes]:
    good_png = picture(1)
    large_text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80 * 2**20), 9))
    return {
        "nothing": b"",
        "script": b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>',
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "half a png": good_png[: len(good_png) // 2],
        "bomb, announced": png(60_000, 60_000, zlib.compress(bytes(10_000))),
        "bomb, just over": picture(1, side=1001),
        "bomb, jpeg": picture(1, "JPEG", side=2000),
        "bomb, in a text": png(40, 40, zlib.compress(bytes(40 * 121)), large_text)[:-60],
        "png, no pixels": png(0, 0, b""),
        "png, more pixels than data": png(900, 900, zlib.compress(bytes(100))),
        "tiff that points at itself": b"II*\x00\x08\x00\x00\x00\x00\x00\x08\x00\x00\x00",
        "webp of nonsense": b"RIFF\xff\xff\xff\xffWEBPVP8 " + b"\xff" * 100,
        "jpeg2000 of nonsense": b"\x00\x00\x00\x0cjP  \r\n\x87\n" + b"\xff" * 100,
    }


def bad_requests() -> dict[str, Request]:
    good = picture(1)
    images = {f"image: {name}": (multipart(data), MULTIPART) for name, data in bad_images().items()}
    return images | {
        "no boundary": (multipart(good), {"Content-Type": "multipart/form-data"}),
        "another boundary": (multipart(good), {"Content-Type": "multipart/form-data; boundary=other"}),
        "long boundary": (multipart(good), {"Content-Type": "multipart/form-data; boundary=" + "x" * 300}),
        "no end": (multipart(good, end=b""), MULTIPART),
        "no parts": (b"--b--\r\n", MULTIPART),
        "another field": (multipart(good, name="image"), MULTIPART),
        "no file": (b'--b\r\nContent-Disposition: form-data; name="images"\r\n\r\n1\r\n--b--\r\n', MULTIPART),
        "no field": (b"--b\r\nX: y\r\n\r\nabc\r\n--b--\r\n", MULTIPART),
        "no header end": (b"--b\r\nContent-Disposition: form-data", MULTIPART),
        "long header": (b"--b\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", MULTIPART),
        "too many": (multipart(*[good] * 21), MULTIPART),
        "too long": (multipart(bytes(200_001)), MULTIPART),
        "far too long": (multipart(*[bytes(190_000)] * 6), MULTIPART),
        "noise": (random.Random(0).randbytes(5000), MULTIPART),
    }


def header(words: str, data: bytes = b"", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    text = words.encode("latin-1")
    return magic + struct.pack("<H", len(text)) + text + data


def bad_arrays() -> dict[str, bytes]:
    good = npy([vector(1), vector(2)])
    plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"
    words, row = "'descr': '<f4', 'fortran_order': False, 'shape': ", bytes(16)
    return {
        "nothing": b"",
        "magic alone": b"\x93NUMPY",
        "half": good[:-5],
        "too long": good + b"x",
        "infinite": npy([[float("inf"), 0, 0, 0]]),
        "too large for float32": npy([[1e300, 0, 0, 0]], np.float64),
        "no rows": npy(np.empty((0, 4))),
        "wrong width": npy([[1, 2, 3]]),
        "three dimensions": npy(np.zeros((1, 1, 4))),
        "many dimensions": npy(np.zeros((1,) * 30)),
        "integers": npy([[1, 2, 3, 4]], np.int64),
        "big-endian": npy([vector(1)], ">f4"),
        "objects": npy([[{}, [], (), None]], object),
        "by columns": npy(np.asfortranarray(np.ones((2, 4)))),
        "too many": npy([vector(1, i) for i in range(21)]),
        "enormous": header(plain % "2147483647, 4"),
        "negative": header(plain % "-1, 4"),
        "true": header(plain % "True, 4", bytes(16)),
        "no shape": header("{'descr': '<f4', 'fortran_order': False}"),
        "no comma": header("{'descr': '<f4' 'fortran_order': False, 'shape': (1, 4)}", bytes(16)),
        "no brackets": header(words + "(1, 4)", row),
        "a shape in words": header("{" + words + "'(1, 4)'}", row),
        "one entry more": header("{" + words + "(1, 4), 'x': True}", row),
        "a size in two words": header("{" + words + "(1 1, 4)}", row),
        "not a header": header("__import__('os').abort()"),
        "structured": header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 4)}", bytes(16)),
        "long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1),
        "version": header(plain % "1, 4", bytes(16), b"\x93NUMPY\x09\x00"),
    }  # fmt: skip


def mutations(seed: int) -> Callable[[], Request]:
    """Honest image requests with some bytes changed, cut out or doubled; without end."""
    dice = random.Random(seed)
    originals = [
        multipart(picture(k, form), picture(3)) for k in (0, 5) for form in ("PNG", "JPEG", "GIF", "TIFF")
    ]

    def next_request() -> Request:
        body = bytearray(dice.choice(originals))
        for _ in range(dice.randint(1, 12)):
            place = dice.randrange(len(body))
            kind = dice.randrange(4)
            if kind == 0:
                body[place] = dice.randrange(256)
            elif kind == 1:
                del body[place : place + dice.randrange(1, 30)]
            elif kind == 2:
                body[place:place] = body[place : place + dice.randrange(1, 200)]
            else:
                body[place : place + 4] = dice.randbytes(4)
        return bytes(body), MULTIPART

    return next_request
