"""Decoding in processes: equal pixels, and a bound on time, memory and trust."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hostile_files import large_webp, many_scans, slow_bmp
from PIL import Image

from ucds.data.decode import COMMON_FORMATS, UnusableImageError, decode_image
from ucds.serving.decoders import DecodeBounds, Decoders, Decoding, DelayedImageError


@pytest.fixture(scope="module")
def slow() -> bytes:
    """A file that takes some seconds."""
    return slow_bmp()


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    made = Decoders(DecodeBounds(seconds=20))
    yield made
    made.close()


def picture(serial: int = 0, form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(serial).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def bounded(**bounds: object) -> Decoders:
    made = Decoders(DecodeBounds(**bounds))  # type: ignore[arg-type]
    made.decode(picture(), 8)  # its process has started
    return made


def children() -> set[int]:
    """Processes that this one has started."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(number) for numbers in lists for number in numbers.read_text().split()}


def test_an_idle_process_that_was_killed_spoils_no_image() -> None:
    before = children()
    decoders = bounded()
    (idle,) = children() - before
    os.kill(idle, signal.SIGKILL)  # as the system does when memory is short
    os.waitid(os.P_PID, idle, os.WEXITED | os.WNOWAIT)
    expected = decode_image(picture(), 8)
    np.testing.assert_array_equal(decoders.decode(picture(), 8), expected)
    decoders.close()


def test_many_threads_get_what_each_would_decode_alone(decoders: Decoders) -> None:
    files = [picture(i, form) for i, form in enumerate(("PNG", "JPEG", "GIF", "WEBP") * 5)]
    with ThreadPoolExecutor(4) as pool:
        decoded = list(pool.map(lambda data: decoders.decode(data, 16), files))
    for data, pixels in zip(files, decoded, strict=True):
        np.testing.assert_array_equal(pixels, decode_image(data, 16))


def test_unusable_files_are_named_with_the_reason(decoders: Decoders) -> None:
    for data in (b"no image", picture()[:60], b"x" * 100):
        with pytest.raises(UnusableImageError) as here:
            decode_image(data, 16, "a.png")
        with pytest.raises(UnusableImageError) as there:
            decoders.decode(data, 16, "a.png")
        assert str(here.value) == str(there.value)


def test_a_file_that_takes_too_long_is_given_up(slow: bytes) -> None:
    decoders, before = bounded(seconds=0.5), children()
    begun = time.monotonic()
    with pytest.raises(UnusableImageError, match="a: not decoded within"):
        decoders.decode(slow, 16, "a")
    assert time.monotonic() - begun < 15
    assert children() < before
    decoders.close()


def test_a_process_that_gets_no_processor_is_no_fault_of_the_image() -> None:
    before = children()
    decoders = bounded(seconds=0.5)
    (number,) = children() - before
    os.kill(number, signal.SIGSTOP)
    with pytest.raises(DelayedImageError, match="not decoded within 2 seconds"):
        decoders.decode(picture(), 16)
    decoders.close()


def test_a_file_that_takes_too_much_memory_is_refused() -> None:
    decoders, large = bounded(memory_bytes=32 * 2**20, seconds=30), io.BytesIO()
    Image.new("RGB", (3000, 3000)).save(large, "PNG", compress_level=1)
    with pytest.raises(UnusableImageError, match="does not fit into memory"):
        decoders.decode(large.getvalue(), 16)
    with pytest.raises(UnusableImageError):
        decoders.decode(large_webp(3000), 16)  # this library says it in other words
    assert decoders.decode(picture(), 16).shape == (3, 16, 16)  # and the process goes on
    decoders.close()


def test_other_formats_and_more_pixels_than_permitted_are_refused() -> None:
    decoders = bounded(formats=COMMON_FORMATS, max_pixels=2000)
    with pytest.raises(UnusableImageError, match="not an image of a known format"):
        decoders.decode(picture(form="PPM"), 16)
    decoders.close()
    decoders = Decoders(DecodeBounds(max_pixels=1999))
    with pytest.raises(UnusableImageError, match="too many pixels"):
        decoders.decode(picture(), 16)
    decoders.close()


def test_a_process_that_dies_costs_one_image(decoders: Decoders, slow: bytes) -> None:
    before = children()
    decoders.decode(picture(), 16)
    started = children() - before
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(decoders.decode, slow, 16, "a")
        time.sleep(0.1)
        for number in started:
            os.kill(number, signal.SIGKILL)
        with pytest.raises(UnusableImageError, match="a: its decoder crashed"):
            lost.result(10)
    assert decoders.decode(picture(), 16).shape == (3, 16, 16)


def test_a_cancelled_image_ends_at_once(decoders: Decoders, slow: bytes) -> None:
    decoders.decode(picture(), 16)
    decoding, begun = Decoding(decoders, slow, 16), time.monotonic()
    threading.Timer(0.1, decoding.cancel).start()
    with pytest.raises(CancelledError):
        decoding.run()
    assert time.monotonic() - begun < 15
    with pytest.raises(CancelledError):
        decoding.run()


def test_a_process_that_gives_way_from_its_start_is_kept() -> None:
    before, here = children(), os.getpriority(os.PRIO_PROCESS, 0)
    decoders = bounded(niceness=3, give_way_at_once=True)
    started = children() - before
    decoders.decode(picture(1), 8)
    assert len(started) == 1
    assert children() - before == started
    assert os.getpriority(os.PRIO_PROCESS, started.pop()) == min(19, here + 3)
    decoders.close()


def test_processes_hold_no_secrets_and_end_with_their_caller(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCDS_LEDGER", "postgresql://me:secret@host/ledger")
    before = children()
    decoders.decode(picture(), 16)
    (number,) = children() - before
    assert "me:secret" not in Path(f"/proc/{number}/environ").read_text()
    decoders.close()
    assert number not in children()


def test_a_file_that_is_built_to_be_slow_is_refused_before_it_is_decoded(decoders: Decoders) -> None:
    with pytest.raises(UnusableImageError, match=r"a: built to be slow to decode \(more than 100 scans\)"):
        decoders.decode(many_scans(2000, side=64), 16, "a")
