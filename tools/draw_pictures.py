"""Draw the pictures of reports that README and the pages show, from a demo.

    ucds demo && python tools/draw_pictures.py demo-out docs

All images in them are those that the demo draws.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HALF, WHOLE = (760, 600), (1280, 900)
OVER_A_MARK = """() => {
  const i = membersOf(3)[0], box = canvas.getBoundingClientRect(), [x, y] = place(DATA.x[i], DATA.y[i]);
  return [box.x + x, box.y + y];
}"""


@dataclass(frozen=True)
class Shot:
    """One picture of a page.

    Attributes:
        clinic: clinic of the demo whose report is shown.
        section: part of the report that the picture begins with, as a selector.
        scheme: "light" or "dark".
        size: width and height of the browser's window in pixels.
        pointed: whether the pointer is over a mark of the map.
    """

    clinic: str
    section: str
    scheme: str = "light"
    size: tuple[int, int] = HALF
    pointed: bool = False


PICTURES = {
    "report": (Shot("large-clinic", "#map-section", pointed=True), Shot("large-clinic", "#clusters", "dark")),
    "gallery/summary": (Shot("small-clinic", "#summary", size=WHOLE),),
    "gallery/oddities": (Shot("large-clinic", "#oddities", "dark", WHOLE),),
}
"""Pictures by the name of their file, as shots that stand side by side."""


def main() -> None:
    """Take the shots, and write each picture."""
    demo, docs = (Path(name).resolve() for name in sys.argv[1:3])
    with sync_playwright() as play, tempfile.TemporaryDirectory() as place:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, shots in PICTURES.items():
            taken = [take(browser, demo, shot, Path(place) / "shot.png") for shot in shots]
            (docs / name).parent.mkdir(exist_ok=True)
            side_by_side(taken).save(docs / f"{name}.webp", quality=82, method=6)
        browser.close()


def take(browser: Any, demo: Path, shot: Shot, file: Path) -> Image.Image:
    """Open a report at one of its sections, and return what the window shows."""
    width, height = shot.size
    size = {"width": width, "height": height}
    context = browser.new_context(color_scheme=shot.scheme, viewport=size, device_scale_factor=1.1)
    page = context.new_page()
    page.goto((demo / "runs" / shot.clinic / "report.html").as_uri())
    page.evaluate("name => document.querySelector(name).scrollIntoView()", shot.section)
    page.wait_for_timeout(1000)  # pictures are decoded when they come into sight
    if shot.pointed:
        page.mouse.move(*page.evaluate(OVER_A_MARK))
    page.screenshot(path=file)
    context.close()
    return Image.open(file).convert("RGB")


def side_by_side(shots: list[Image.Image], gap: int = 16) -> Image.Image:
    """Put pictures of equal height beside each other."""
    whole = Image.new("RGB", (sum(s.width + gap for s in shots) - gap, shots[0].height), "#888888")
    for number, shot in enumerate(shots):
        whole.paste(shot, (sum(s.width + gap for s in shots[:number]), 0))
    return whole


if __name__ == "__main__":
    main()
