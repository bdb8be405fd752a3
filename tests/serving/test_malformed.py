"""Requests that no honest client sends: each is refused in words, and leaves nothing behind."""

import random
import struct
import zlib
from collections.abc import Iterator
from itertools import islice

import httpx
import numpy as np
from picture_kit import chunk, png
from serving_kit import MULTIPART, Service, npy, picture, refused, vector

from ucds.labels.wire import PROBLEM_TYPE

REFUSALS = {400, 408, 411, 413, 415, 422}
Request = tuple[bytes, dict[str, str]]


def multipart(*contents: bytes, name: str = "images", end: bytes = b"--b--\r\n") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="i"\r\n\r\n'.encode()
    return b"".join(head + content + b"\r\n" for content in contents) + end


def bad_images() -> dict[str, bytes]:
    large_text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80 * 2**20), 9))
    return {
        "nothing": b"",
        "script": b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>',
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "bomb, announced": png(60_000, 60_000, zlib.compress(bytes(10_000))),
        "bomb, just over": picture(1, side=1001),
        "bomb, jpeg": picture(1, "JPEG", side=2000),
        "bomb, in a text": png(40, 40, zlib.compress(bytes(40 * 121)), extra=large_text)[:-60],
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


def mutations(seed: int) -> Iterator[Request]:
    """Honest image requests with some bytes changed, cut out or doubled; without end."""
    dice = random.Random(seed)
    forms = [(label, form) for label in (0, 5) for form in ("PNG", "JPEG", "GIF", "TIFF")]
    originals = [multipart(picture(label, form), picture(3)) for label, form in forms]
    while True:
        body = dice.choice(originals)
        for _ in range(dice.randint(1, 12)):
            place, length = dice.randrange(len(body)), dice.randint(1, 30)
            old = body[place : place + length]
            new = dice.choice([dice.randbytes(1) + old[1:], dice.randbytes(len(old)), b"", old * 2])
            body = body[:place] + new + body[place + length :]
        yield body, MULTIPART


def check_no_label(answer: httpx.Response, name: str) -> None:
    """Refused in words, or answered that no sample can be used."""
    if answer.status_code == 200:
        assert set(answer.json()["labels"]) == {None}, name
        return
    assert answer.status_code in REFUSALS, f"{name}: {answer.status_code} {answer.text}"
    assert "Traceback" not in refused(answer, answer.status_code).detail, name


def test_hostile_images(pictures: Service) -> None:
    for name, (body, headers) in bad_requests().items():
        check_no_label(pictures.send(body, headers), name)
    answer = pictures.ask(picture(4)).json()
    assert (answer["labels"], answer["balance"]["used"]) == ([4], 1)


def test_hostile_arrays(vectors: Service) -> None:
    for name, body in bad_arrays().items():
        check_no_label(vectors.send(body), name)
    answer = vectors.ask(vector(4), [1, float("nan"), 0, 0]).json()
    assert (answer["labels"], answer["balance"]["used"]) == ([4, None], 1)
    assert answer["unusable"] == [{"position": 1, "reason": "holds NaN or infinity"}]


def test_damaged_bytes_of_honest_requests_are_no_fault(pictures: Service) -> None:
    for body, headers in islice(mutations(seed=1), 60):
        answer = pictures.send(body, headers)
        if answer.status_code != 200:
            check_no_label(answer, repr(body[:80]))
    assert pictures.ask(picture(4)).json()["labels"] == [4]


def test_arrays_of_other_forms_hold_the_same_sample(vectors: Service) -> None:
    """Float64 or float32, with either zero, and with a header that NumPy would not write."""
    words = '{"shape":(1,4,),"fortran_order":False,"descr":"<f4"}   \n'
    for array in (
        npy([[1.0, 0.5, 0, 0.0]], "f8"),
        npy([[1.0, 0.5, 0, -0.0]], "f4"),
        header(words, np.array([1.0, 0.5, 0, 0.0], "<f4").tobytes()),
    ):
        answer = vectors.send(array).json()
        assert (answer["labels"], answer["balance"]["used"]) == ([1], 1)


def test_what_is_not_one_whole_request_is_refused(pictures: Service) -> None:
    body = multipart(picture(1))
    assert b" 400 " in pictures.exchange(b"\x16\x03\x01\x02\x00 no http at all\r\n\r\n")
    chunked = pictures.exchange(pictures.head("Transfer-Encoding: chunked", "Connection: close"))
    assert b"HTTP/1.1 411" in chunked  # before the body is read
    assert PROBLEM_TYPE.encode() in chunked
    zeros = "0" * 30 + "99999999999"
    for length, statuses in (("99999999999", [b"413"]), (zeros, [b"413"]), ("40", [b"400", b"422"])):
        words = pictures.head(f"Content-Length: {length}", "Connection: close")
        assert pictures.exchange(words, body)[9:12] in statuses
    for nonsense in ("-1", "1e3", "5, 6", "0x10", "9" * 30):
        assert b" 200 " not in pictures.exchange(pictures.head(f"Content-Length: {nonsense}"), body)
    # No second request hides behind two lengths of the first.
    both = pictures.head("Content-Length: 5", "Transfer-Encoding: chunked")
    # In one piece: what came after the answer would end the connection before the answer could be read.
    hidden = pictures.head("Content-Length: 0")
    answer = pictures.exchange(both + b"5\r\nabcde\r\n0\r\n\r\n" + hidden)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert pictures.ask(picture(7)).json()["labels"] == [7]


def test_a_wrong_media_type_or_coding_is_refused(vectors: Service, pictures: Service) -> None:
    refused(vectors.ask(picture(1)), 415, "wrong-type")
    refused(pictures.ask(vector(1)), 415, "wrong-type")
    refused(vectors.send(b"x", {"Accept": "*/*"}), 415, "wrong-type")
    answer = pictures.send(multipart(picture(1)), MULTIPART | {"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
