"""Draw the picture of a report that the README shows: its map in light colours, its clusters in dark ones.

    ucds demo && python tools/draw_report_picture.py demo-out/runs/large-clinic/report.html docs/report.webp

The pictures in it are those that the demo draws.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE, SCALE, GAP = {"width": 760, "height": 960}, 1.1, 16
OVER_A_MARK = """() => {
  const i = membersOf(3)[0], box = canvas.getBoundingClientRect(), [x, y] = place(DATA.x[i], DATA.y[i]);
  return [box.x + x, box.y + y];
}"""


def main() -> None:
    """Open the report twice, and put both pictures side by side."""
    report, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    with sync_playwright() as play, tempfile.TemporaryDirectory() as place:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shots = [Path(place) / f"{name}.png" for name in ("map", "clusters")]
        page = open_report(browser, report, "light", "#map-section")
        page.mouse.move(*page.evaluate(OVER_A_MARK))
        page.screenshot(path=shots[0])
        open_report(browser, report, "dark", "#clusters").screenshot(path=shots[1])
        browser.close()
        left, right = (Image.open(shot).convert("RGB") for shot in shots)
    both = Image.new("RGB", (left.width + right.width + GAP, left.height), "#888888")
    both.paste(left, (0, 0))
    both.paste(right, (left.width + GAP, 0))
    both.save(out, quality=82, method=6)


def open_report(browser: Any, report: Path, scheme: str, section: str) -> Any:
    """Return a page that shows a section of the report from its beginning."""
    context = browser.new_context(color_scheme=scheme, viewport=SIZE, device_scale_factor=SCALE)
    page = context.new_page()
    page.goto(report.as_uri())
    page.evaluate("name => document.querySelector(name).scrollIntoView()", section)
    page.wait_for_timeout(1000)  # pictures are decoded when they come into sight
    return page


if __name__ == "__main__":
    main()
