"""Draw the pictures of the page that README and the pages for users show, from a demo.

    ucds demo && python tools/draw_pictures.py demo-out docs

All images in them are those that the demo draws.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright


@dataclass(frozen=True)
class Shot:
    """One picture of the page.

    Attributes:
        clinic: clinic of the demo whose run is shown.
        steps: what is clicked before, as selectors.
        scheme: "light" or "dark".
        live: whether the run is reviewed, not looked at as a file.
        width, height: size of the browser's window in pixels.
    """

    clinic: str
    steps: tuple[str, ...] = ()
    scheme: str = "light"
    live: bool = False
    width: int = 1280
    height: int = 800


PICTURES = {
    "report": Shot("large-clinic", live=True),
    "gallery/map": Shot("large-clinic", ("#open-map", "[aria-label='Zoom in']"), "dark"),
    "gallery/summary": Shot("small-clinic", ("#open-about",)),
}
"""Shots by the name of their file."""


def main() -> None:
    """Take the shots, and write each picture."""
    demo, docs = (Path(name).resolve() for name in sys.argv[1:3])
    with sync_playwright() as play:
        switches = ["--no-sandbox", "--enable-unsafe-swiftshader"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=switches)
        for name, shot in PICTURES.items():
            (docs / name).parent.mkdir(exist_ok=True)
            run = demo / "runs" / shot.clinic
            with reviewed(run) if shot.live else nothing(run) as address:
                take(browser, address, shot).save(docs / f"{name}.webp", quality=82, method=6)
        browser.close()


@contextmanager
def nothing(run: Path) -> Iterator[str]:
    """Yield the address of a run's report, which needs no server."""
    yield (run / "report.html").as_uri()


@contextmanager
def reviewed(run: Path) -> Iterator[str]:
    """Review a run, and yield the address of the page."""
    command = [sys.executable, "-m", "ucds", "review", str(run), "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stderr)))
    yield found[0]
    process.terminate()
    process.wait()


def take(browser: Any, address: str, shot: Shot) -> Image.Image:
    """Open the page, click what is to be clicked, and return what the window shows."""
    size = {"width": shot.width, "height": shot.height}
    context = browser.new_context(color_scheme=shot.scheme, viewport=size, device_scale_factor=1.1)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".answers button" if shot.live else "#grid [role=option]")
    for step in shot.steps:
        page.click(step)
    page.wait_for_timeout(4000)  # pictures are decoded when they come into sight
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    context.close()
    return picture


if __name__ == "__main__":
    main()
