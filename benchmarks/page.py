"""Waits, frames and memory of the page that `ucds review` serves, in Chromium without a graphics card.

    python benchmarks/page.py [--samples 5000 50000] [--work FOLDER]

The pictures are stripes of ten kinds. They and the runs stay in the folder, and are used again. A wait is the
time from a key or a click until the page says what was done. Frames are those that the page draws while the
grid is scrolled, or the map zoomed, for four seconds. Memory is the proportional set size of all processes of
the browser (PSS) after the actions and the map, and the resident memory of the server.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
from PIL import Image
from playwright.sync_api import sync_playwright
from records import Row, complete, table

import ucds

FIRST_PICTURE = """() => [...document.querySelectorAll("#grid img")]
  .some((picture) => picture.complete && picture.naturalWidth)"""
SCROLL = "() => { document.getElementById('grid').scrollTop += 60; }"
COUNT_FRAMES = """() => {
  globalThis.frames_seen = 0;
  const count = () => { frames_seen++; requestAnimationFrame(count); };
  requestAnimationFrame(count);
}"""
SECONDS = 4.0  # for which frames are counted


def make_run(samples: int, work: Path) -> Path:
    """Draw pictures and train a run on them, unless it is there already."""
    run, pictures = work / f"run-{samples}", work / f"pictures-{samples}"
    if not (run / "model.safetensors").exists():
        rng = np.random.default_rng(0)
        pictures.mkdir(parents=True, exist_ok=True)
        y, x = np.mgrid[:48, :48] / 48
        for i in range(samples):
            angle, wide = i % 5 * np.pi / 5, 8 if i % 10 < 5 else 24
            wave = np.sin(wide * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))
            pixels = 128 + 100 * wave[..., None] * rng.uniform(0.3, 1, 3) + rng.normal(0, 8, (48, 48, 3))
            Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(pictures / f"{i}.jpg")
        encoder = ucds.EncoderOptions("ucds/oriented_edges", "none")
        ucds.train_target(pictures, run, n_clusters=10, encoder=encoder)
    ucds.report(run)  # so that the run keeps its map, as after `ucds sort` or `ucds train-target`
    (run / "answers.jsonl").unlink(missing_ok=True)
    return run


@contextmanager
def served(run: Path) -> Iterator[tuple[str, int]]:
    """Review a run; yield the address of the page, and the id of the server's process."""
    command = [sys.executable, "-m", "ucds", "review", str(run), "--no-open"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield next(filter(None, (re.search(r"http://\S+", line) for line in process.stderr)))[0], process.pid
    finally:
        process.terminate()
        process.wait()


def measure(run: Path, samples: int) -> Iterable[Row]:
    """Work with the page of a run, and yield what was measured."""
    with (
        served(run) as (address, server),
        sync_playwright() as play,
        tempfile.TemporaryDirectory() as profile,
    ):
        browser = play.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--enable-unsafe-swiftshader"],
            viewport={"width": 1440, "height": 900},
        )
        page, waits = browser.pages[0], dict[str, float]()
        page.wait_for_timeout(1000)
        blank = memory_of(profile)
        begun = time.perf_counter()
        page.goto(address)
        page.wait_for_function(FIRST_PICTURE)
        waits["first picture"] = time.perf_counter() - begun
        page.wait_for_selector(".answers button")
        page.evaluate(COUNT_FRAMES)
        grid = frames(page, lambda: page.evaluate(SCROLL))
        act(page, waits)
        begun = time.perf_counter()
        page.keyboard.press("k")
        page.wait_for_selector("#map .label", timeout=300_000)
        waits["map"] = time.perf_counter() - begun
        box = page.locator("#map").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        turns = cycle([-60] * 20 + [60] * 20)
        zoom = frames(page, lambda: page.mouse.wheel(0, next(turns)))
        memory = memory_of(profile)
        resident = psutil.Process(server).memory_info().rss
        load = os.getloadavg()[0]
        yield {
            "samples": samples,
            "waits": {name: round(seconds, 2) for name, seconds in waits.items()},
            "grid": round(grid, 1),
            "zoom": round(zoom, 1),
            "browser_mb": round(memory / 1e6),
            "blank_mb": round(blank / 1e6),
            "server_mb": round(resident / 1e6),
            "load": round(load, 1),
        }
        browser.close()


def work_on(samples: int, work: Path) -> Iterable[Row]:
    """Measure the page of a run on so many pictures."""
    return measure(make_run(samples, work), samples)


def act(page: Any, waits: dict[str, float]) -> None:
    """Do each action once, and note how long it takes until the page says what it did."""

    def wait(name: str, does: Callable[[], object], said: str) -> None:
        begun = time.perf_counter()
        does()
        page.locator("#said", has_text=said).wait_for(timeout=60_000)
        waits[name] = time.perf_counter() - begun
        page.wait_for_timeout(500)

    press = page.keyboard.press
    page.click("#grid [role=option] >> nth=3")
    press("Shift+ArrowDown")
    wait("new cluster", partial(press, "c"), "Moved")
    wait("undo", partial(press, "u"), "Undid")
    wait("redo", partial(press, "r"), "Repeated")
    page.focus("#grid")
    press("ArrowRight")
    wait("set aside", partial(press, "x"), "aside")
    page.click(".pick >> nth=0")
    page.click(".pick >> nth=1", modifiers=["Control"])
    wait("join", partial(press, "j"), "Joined")
    press("u")
    page.locator("#said", has_text="Undid").wait_for()
    page.click(".pick >> nth=0")
    page.fill("#parts", "3")
    wait("preview of a split", partial(page.click, "text=Show the parts"), "Preview")
    wait("split", partial(page.click, "#take"), "Done")
    press("f")
    page.wait_for_selector("#finer")
    wait("preview of 25 clusters", partial(page.fill, "#finer", "25"), "Preview: 25")
    wait("25 clusters", partial(page.click, "#take"), "Done")
    press("q")
    begun = time.perf_counter()
    page.wait_for_selector(".answers button")
    waits["question after that"] = time.perf_counter() - begun + 0.5  # as long as was waited before
    wait("answer", partial(press, "m"), "Answered")
    page.click("#grid [role=option] >> nth=3")
    wait("like this", partial(press, "l"), " like ")


def frames(page: Any, move: Callable[[], object]) -> float:
    """Return the frames a second that the page draws while something moves."""
    before, begun = page.evaluate("frames_seen"), time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        move()
        page.wait_for_timeout(30)
    return float((page.evaluate("frames_seen") - before) / (time.perf_counter() - begun))


def memory_of(profile: str) -> int:
    """Return the bytes that all processes of the browser with a profile hold."""
    return sum(one.memory_full_info().pss for one in psutil.Process().children(True) if profile in args(one))


def args(process: psutil.Process) -> str:
    """Return the command line of a process, with those of its parents up to the browser."""
    try:
        return " ".join(part for one in (process, *process.parents()) for part in one.cmdline())
    except psutil.Error:
        return ""


def page_of(runs: Sequence[Row]) -> str:
    """Write the page of the measurements."""
    rows = [
        {
            "samples": f"{run['samples']:,}",
            **{name: f"{seconds:.2f}" for name, seconds in run["waits"].items()},
            "frames of the grid": f"{run['grid']:.0f}",
            "frames of the map": f"{run['zoom']:.0f}",
            "browser (MB)": str(run["browser_mb"]),
            "browser before the page (MB)": str(run["blank_mb"]),
            "server (MB)": str(run["server_mb"]),
            "load before": f"{run['load']:.1f}",
        }
        for run in runs
    ]
    frame = pd.DataFrame(rows).set_index("samples").T.reset_index(names="")
    first, _, how = (__doc__ or "").split("\n\n")
    return f"# The page of a review\n\n{first} Waits are in seconds.\n\n{how.strip()}\n\n{table(frame)}\n"


def main() -> None:
    """Measure what is not recorded yet, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[5000, 50000])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "ucds-page")
    options = parser.parse_args()
    complete(
        __file__,
        [({"samples": n}, partial(work_on, n, options.work)) for n in options.samples],
        page_of,
    )


if __name__ == "__main__":
    main()
