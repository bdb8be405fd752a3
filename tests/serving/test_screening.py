"""Files with far more parts than an image needs are refused before they are decoded; honest ones are not."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from hostile_files import comments, fill_bytes, gif_comments, large_tile, many_scans, png_chunks
from PIL import Image

from ucds.data.decode import UnusableImageError, decode_image
from ucds.serving.screening import MAX_SCANS, TooElaborateError, check_structure


def photograph(form: str, side: int = 300, **options: object) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (many_scans(2000, side=64), "100 scans"),
        (fill_bytes(2 * 2**20), "empty bytes"),
        (b"\xff\xd8\xff\xfe\x00\x02" + bytes(2**21), "empty bytes"),
        (b"\xff\xd8" + b"\xff\xfe\x00\x02" * 5000, "4,096 parts"),
        (b"\xff\xd8" + (b"\xff\xfe\xff\xff" + b"c" * 65533) * 20, "comments"),
        (large_tile(1500), "tiles"),
        (gif_comments(2**21), "4,096 parts"),
        (b"GIF89a" + bytes(7) + bytes(2**21), "empty bytes"),
        (png_chunks(5000), "4,096 parts"),
        (b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IDATcrc." * 100_001, "pieces of pixels"),
    ],
)
def test_files_built_to_be_slow_are_refused_at_once(data: bytes, reason: str) -> None:
    begun = time.process_time()
    with pytest.raises(TooElaborateError, match=reason):
        check_structure(data)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "comment": b"c" * 60_000, "icc_profile": b"i" * 900_000}),
        ("JPEG", {"quality": 100, "subsampling": 0, "restart_marker_rows": 1}),
        ("PNG", {}),
        ("GIF", {"comment": b"c" * 60_000}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw", "tiffinfo": {322: 256, 323: 256}}),
    ],
)
def test_honest_files_pass(form: str, options: dict[str, object]) -> None:
    check_structure(photograph(form, **options))


def test_as_many_scans_as_permitted_pass() -> None:
    check_structure(many_scans(MAX_SCANS - 10, side=32))
    with pytest.raises(TooElaborateError):
        check_structure(many_scans(MAX_SCANS + 1, side=32))


def test_the_search_for_markers_is_linear() -> None:
    seconds = []
    for length in (2**20, 2**22):
        noise = b"\xff\xd8\xff\xda\x00\x02" + b"\xff" * (length // 2) + b"\x00\xff\xd0" * (length // 6)
        begun = time.process_time()
        check_structure(noise)
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 20 * seconds[0] + 0.5


def test_a_long_comment_of_a_ppm_ends() -> None:
    with pytest.raises(UnusableImageError, match="damaged"):
        decode_image(comments(2**16), 32)
