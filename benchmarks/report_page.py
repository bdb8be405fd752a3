"""Measures the report of many pictures: the size of its file, and the time until a browser shows it.

    python benchmarks/report_page.py [--count 5000]

Each measurement is a line of ``report_page.jsonl``; the page shows the latest. Needs chromium
(``apt-get install chromium``). The pictures are parts of two photographs that scikit-learn brings.
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
from PIL import Image
from playwright.sync_api import sync_playwright
from records import Records, table
from sklearn.datasets import load_sample_images

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
    """Cut the pictures, write their report, open it, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=5_000)
    given = parser.parse_args()
    records = Records(__file__, Measured)
    with tempfile.TemporaryDirectory() as name:
        records.add(measure(cut_pictures(Path(name) / "pictures", given.count), Path(name)))
    records.write_page(describe(records.runs[-1]))


def cut_pictures(folder: Path, count: int) -> Path:
    """Cut pictures from the two photographs of scikit-learn, at random places, into a folder."""
    folder.mkdir()
    rng, photographs = np.random.default_rng(0), load_sample_images().images
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        down, across = (int(rng.integers(side - SIDE)) for side in photograph.shape[:2])
        part = photograph[down : down + SIDE, across : across + SIDE]
        Image.fromarray(part).save(folder / f"{number:05}.jpg", quality=85)
    return folder


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
        pictures="parts of photographs",
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
