"""Measures the report of many pictures: the size of its file, and the time until a browser shows it.

    python benchmarks/report_page.py [--count 5000]

Each measurement is a line of ``report_page.jsonl``; the page shows the latest. Needs chromium
(``apt-get install chromium``). The pictures are drawn: coloured noise whose strength falls with its frequency
as in photographs (1 / f), with a shape on it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright
from records import Records, table

import ucds

LIMITS = {"megabytes": 25.0, "seconds": 2.0}
SIDE, N_CLUSTERS, OPENINGS = 128, 10, 5
ENCODER = ucds.EncoderOptions("ucds/oriented_edges", "none", 112)
TRAINED_ON = 300  # the report is measured, not the clusters
SCREENS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}

HEAD = f"""# The report of 5,000 pictures

`ucds report` on pictures in {N_CLUSTERS} clusters, opened from a file in headless Chromium {OPENINGS} times,
each in a new browser. *Shown* is the time until all scripts have run and the map is drawn; *work* is the
processor time of the page's main thread until then, which other programs on the machine do not delay.
Medians, and the largest in brackets.
Limits: {LIMITS["megabytes"]:g} MB, shown within {LIMITS["seconds"]:g} s.
Written by `benchmarks/report_page.py`.
"""

# Resolves when the page has loaded, its scripts have run, and a frame was drawn after that.
SHOWN = """() => new Promise((done) => {
  const paint = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN;
  const drawn = () => requestAnimationFrame(() => setTimeout(() => done([paint(), performance.now()])));
  document.readyState === "complete" ? drawn() : addEventListener("load", drawn);
})"""


@dataclass(frozen=True)
class Measured:
    """What was measured of one report; times are in seconds.

    Attributes:
        pictures: kind of the pictures.
        count: number of pictures in the report.
        megabytes: size of the file, in millions of bytes.
        writing: time to compute and write the report, decoding and features included.
        openings: by screen, for each opening the times to the first paint and until the map is drawn, and the
            processor time of the page's main thread.
        cores: number of processor cores.
        load: mean number of processes that wanted a core in the minute before.
    """

    pictures: str
    count: int
    megabytes: float
    writing: float
    openings: dict[str, list[tuple[float, float, float]]]
    cores: int
    load: float


def main() -> None:
    """Draw the pictures, write their report, open it, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=5_000)
    given = parser.parse_args()
    records = Records(__file__, Measured)
    with tempfile.TemporaryDirectory() as name:
        records.add(measure(draw_pictures(Path(name) / "pictures", given.count), Path(name)))
    records.write_page(describe(records.runs[-1]))


def draw_pictures(folder: Path, count: int) -> Path:
    """Draw pictures of ``N_CLUSTERS`` colours and shapes into a folder."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    grounds = [noise(rng) for _ in range(100)]
    for number in range(count):
        ground = np.roll(grounds[number % len(grounds)], rng.integers(SIDE, size=2), axis=(0, 1))
        draw(number % N_CLUSTERS, ground, rng).save(folder / f"{number:05}.jpg", quality=85)
    return folder


def draw(kind: int, ground: NDArray[np.uint8], rng: np.random.Generator) -> Image.Image:
    """Draw a polygon of ``3 + kind`` corners somewhere on a ground."""
    picture = Image.fromarray(ground)
    x, y = (int(v) for v in rng.integers(45, 83, 2))
    colour = tuple(int(v) for v in np.random.default_rng(kind).integers(256, size=3))
    ImageDraw.Draw(picture).regular_polygon((x, y, 30), 3 + kind, fill=colour)
    return picture


def noise(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return noise ``(SIDE, SIDE, 3)`` whose amplitudes fall with their frequency as in photographs."""
    across = np.fft.fftfreq(SIDE)
    frequency = np.hypot(across[:, None], across[None, :])
    frequency[0, 0] = np.inf
    field = np.fft.ifft2(np.fft.fft2(rng.normal(size=(3, SIDE, SIDE))) / frequency).real
    field *= 45 / field.std(axis=(1, 2), keepdims=True)
    return np.clip(field + rng.integers(80, 176, (3, 1, 1)), 0, 255).astype(np.uint8).transpose(1, 2, 0)


def measure(folder: Path, place: Path) -> Measured:
    """Train on some of the pictures, write the report of all, and open it in a browser."""
    images = sorted(folder.iterdir())
    run, compute = place / "run", ucds.Compute(cache=place / "cache")
    ucds.train_target(images[:TRAINED_ON], run, n_clusters=N_CLUSTERS, encoder=ENCODER, compute=compute)
    start = time.monotonic()
    page = ucds.report(run, images, place / "report.html", compute=compute).path
    writing = time.monotonic() - start
    load = os.getloadavg()[0]
    return Measured(
        pictures="drawn",
        count=len(images),
        megabytes=page.stat().st_size / 1e6,
        writing=writing,
        openings={screen: open_often(page, size) for screen, size in SCREENS.items()},
        cores=os.cpu_count() or 1,
        load=load,
    )


def open_often(page: Path, size: dict[str, int]) -> list[tuple[float, float, float]]:
    """Open a page in a new browser each time; return times as in :class:`Measured`."""
    found = []
    with sync_playwright() as play:
        for _ in range(OPENINGS):
            chromium: Any = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            tab = browser.new_context(viewport=size).new_page()  # type: ignore[arg-type]
            meter = tab.context.new_cdp_session(tab)
            meter.send("Performance.enable", {"timeDomain": "threadTicks"})
            tab.goto(page.as_uri(), wait_until="commit")
            paint, shown = tab.evaluate(SHOWN)
            metrics = {
                entry["name"]: entry["value"] for entry in meter.send("Performance.getMetrics")["metrics"]
            }
            found.append((paint / 1e3, shown / 1e3, metrics["TaskDuration"]))
            browser.close()
    return found


def describe(run: Measured) -> str:
    """Write the record as a page."""
    header = ["pictures", "count", "MB", "screen", "first paint, s", "shown, s", "work, s", "writing it, s"]
    rows = []
    for screen, times in run.openings.items():
        columns = [spread(column) for column in zip(*times, strict=True)]
        cells = [run.pictures, f"{run.count:,}", f"{run.megabytes:.1f}", screen, *columns]
        rows.append([*cells, f"{run.writing:.0f}"])
    machine = f"Machine: {run.cores} cores, shared with other work; load average {run.load:.1f}.\n"
    return f"{HEAD}\n{table(header, rows)}\n\n{machine}"


def spread(times: Sequence[float]) -> str:
    """Write the median of some times, and the longest one."""
    return f"{statistics.median(times):.2f} ({max(times):.2f})"


if __name__ == "__main__":
    main()
