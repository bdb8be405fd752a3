"""Runs ``ucds review`` for tests, and reads what it keeps."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe

import ucds

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
BRIEF = ucds.ConsensusSettings(starts=2, bottleneck_width=8)
EDGES = ucds.EncoderOptions("ucds/oriented_edges", "none")


@contextmanager
def reviewing(run: Path, *options: str, opens: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command in a process of its own; yield the address of the page, and the process."""
    command = [sys.executable, "-m", "ucds", "review", str(run), *options]
    command += [] if opens else ["--no-open"]
    process = subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
                yield found[0], process
                break
        else:
            raise AssertionError("the command has said no address")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def require_no_findings_of_axe(page: Any, step: str) -> None:
    """Judge what a page shows on a phone in the dark, and on a desktop in the light."""
    for size, scheme in ((PHONE, "dark"), (DESKTOP, "light")):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == [], (step, size, scheme)


def records(run: Path) -> list[dict[str, Any]]:
    """Read the records of a review, those that were taken back included."""
    path = run / "answers.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]
