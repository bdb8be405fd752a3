"""Decoding in confined processes: equal pixels, fair turns, a bound on time, memory and trust."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_service import large_webp, saved, slow_bmp
from PIL import Image
from serving_kit import children

from ucds.data.decode import UnusableImageError, decode_image
from ucds.serving.bounds import Waste
from ucds.serving.decoding import ImageDecoder
from ucds.serving.limits import SERVED_FORMATS, Limits
from ucds.serving.problems import Refusal

ANNA, BERT = 1, 2
SIDE = 16
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def slow() -> bytes:
    """A file that takes some seconds."""
    return slow_bmp()


def picture(serial: int = 0, form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(serial).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    return saved(Image.fromarray(pixels), form)


@asynccontextmanager
async def decoding(waste: Waste | None = None, **limits: Any) -> AsyncIterator[ImageDecoder]:
    settings: dict[str, Any] = {"decode_workers": 2, "decode_seconds": 30.0} | limits
    decoder = ImageDecoder(SIDE, Limits(**settings), waste or Waste(1e6))
    await one(decoder, picture(99))  # its process has started
    try:
        yield decoder
    finally:
        decoder.close()


async def one(decoder: ImageDecoder, data: bytes, key: int = ANNA) -> Any:
    (found,) = await decoder.decode(key, {data[-16:]: data})
    return found


async def test_every_file_gets_the_pixels_or_the_reason_that_it_would_get_alone() -> None:
    """In every format of the service, of large images too, for which libraries start threads."""
    coarse = np.random.default_rng(0).integers(0, 256, (30, 35, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((700, 600))
    scan = Path(pytest.importorskip("pydicom.data").get_testdata_file("JPEG2000.dcm")).read_bytes()
    good = [scan if form == "DICOM" else saved(image, form) for form in SERVED_FORMATS]
    bad = [b"no image", picture()[:60], b"x" * 100]
    async with decoding(formats=SERVED_FORMATS) as decoder:
        files = {bytes([number]): data for number, data in enumerate(good + bad)}
        found = await decoder.decode(ANNA, files)
    for form, data, decoded in zip(SERVED_FORMATS, good, found, strict=False):
        np.testing.assert_array_equal(decoded, decode_image(data, SIDE), form)
    for data, reason in zip(bad, found[len(good) :], strict=True):
        with pytest.raises(UnusableImageError) as here:
            decode_image(data, SIDE)
        assert reason == here.value.reason


async def test_a_file_that_takes_too_long_is_given_up_and_paid_for_once(
    slow: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ucds.serving.decoding._PATIENCE", 100)  # other work may keep the processors
    waste = Waste(1000, clock=lambda: 0.0)
    async with decoding(waste, decode_seconds=0.3) as decoder:
        before = children()
        assert await one(decoder, slow) == "not decoded within 0.3 seconds"
        debt = waste.debt(ANNA)
        assert 0.3 < debt < 2
        assert not children() >= before  # its process is gone
        assert await one(decoder, slow) == "not decoded within 0.3 seconds"
        assert waste.debt(ANNA) == debt


async def test_a_file_that_takes_too_much_memory_is_refused_and_the_process_goes_on() -> None:
    large = saved(Image.new("RGB", (3000, 3000)), "PNG", compress_level=1)
    async with decoding(decode_memory_bytes=32 * 2**20) as decoder:
        before = children()
        assert await one(decoder, large) == "takes too much memory (over 32 MiB)"
        assert isinstance(await one(decoder, large_webp(3000)), str)  # this library has other words
        assert isinstance(await one(decoder, picture()), np.ndarray)
        assert children() >= before


async def test_other_formats_and_more_pixels_than_permitted_are_refused() -> None:
    async with decoding(max_image_pixels=2000) as decoder:
        assert await one(decoder, picture(form="PPM")) == "not an image of a known format"
        assert isinstance(await one(decoder, picture(form="JPEG")), np.ndarray)
    async with decoding(max_image_pixels=1999) as decoder:
        assert "too many pixels" in await one(decoder, picture())


async def test_processes_hold_no_secrets_and_cost_one_image_at_most_when_they_die(
    slow: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCDS_LEDGER", "postgresql://me:secret@host/ledger")
    before = children()
    async with decoding() as decoder:
        (idle,) = children() - before
        assert "me:secret" not in Path(f"/proc/{idle}/environ").read_text()
        os.kill(idle, signal.SIGKILL)  # as the system does when memory is short
        os.waitid(os.P_PID, idle, os.WEXITED | os.WNOWAIT)
        assert isinstance(await one(decoder, picture()), np.ndarray)
        (busy,) = children() - before
        lost = asyncio.ensure_future(one(decoder, slow))
        await asyncio.sleep(0.2)
        os.kill(busy, signal.SIGKILL)
        assert await lost == "its decoder crashed"
        assert isinstance(await one(decoder, picture()), np.ndarray)
    assert children() == before


async def test_answers_of_another_form_cost_their_image_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with decoding() as decoder:
        for number, answer in enumerate((b"", b"\0" + bytes(7), b"\0" + bytes(5000))):
            (process,), (ours, theirs) = decoder._idle, Pipe()
            monkeypatch.setattr(process, "_channel", ours)
            theirs.send_bytes(answer)
            assert isinstance(await one(decoder, picture(2 * number)), str)
            process.end()
            assert isinstance(await one(decoder, picture(2 * number + 1)), np.ndarray)


async def test_a_file_whose_process_gets_no_processor_may_be_sent_again() -> None:
    others = children()
    async with decoding(decode_seconds=0.3) as decoder:
        (stopped,) = children() - others
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(Refusal) as refused:
            await one(decoder, picture())
        assert refused.value.kind == "busy"
        assert int(refused.value.headers["Retry-After"]) > 0
        assert isinstance(await one(decoder, picture()), np.ndarray)


async def test_slow_images_of_one_key_leave_a_process_to_the_others_and_end_when_cancelled(
    slow: bytes,
) -> None:
    others = children()
    async with decoding() as decoder:
        (busy,) = children() - others
        stuck = asyncio.ensure_future(decoder.decode(ANNA, {bytes([i]): slow + bytes([i]) for i in range(3)}))
        await asyncio.sleep(0.2)
        assert isinstance(await one(decoder, picture(), BERT), np.ndarray)
        assert not stuck.done()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert busy not in children()


async def test_the_service_goes_before_its_decoders_and_ctrl_c_is_for_it_alone() -> None:
    others = children()
    async with decoding():
        (decoder,) = children() - others
        assert os.getpriority(os.PRIO_PROCESS, decoder) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        assert os.getsid(decoder) == os.getsid(0)  # between sessions, Linux does not look at priorities
        assert os.getpgid(decoder) != os.getpgid(0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone")
def test_the_kernel_calls_a_process_that_hides_its_memory_not_dumpable() -> None:
    asked = 3  # PR_GET_DUMPABLE
    program = (
        "import ctypes; from ucds.data.confinement import hide_memory; libc = ctypes.CDLL(None); "
        f"before = libc.prctl({asked}); hide_memory(); print(before, libc.prctl({asked}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "0"], done.stderr
