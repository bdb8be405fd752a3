"""Runs a label service in a process of its own, on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ucds.errors import ServiceUnavailableError

_READY = "listening on "


@dataclass(frozen=True)
class Loopback:
    """Address of a running service, and a key for it."""

    url: str
    key: str = field(repr=False)


def make_key(run: Path, holder: str, budget: int) -> str:
    """Make a key that pays for the labels of ``budget`` samples."""
    from ucds.serving.ledger import Ledger

    ledger = Ledger(str(run), create=True)
    try:
        return ledger.add_key(holder, budget, None)
    finally:
        ledger.close()


@contextmanager
def label_service(run: Path, key: str) -> Iterator[Loopback]:
    """Serve a source run on a free loopback port for as long as the context lasts.

    Raises:
        ServiceUnavailableError: the service did not start; its last line of output is part of the message.
    """
    command = [sys.executable, "-m", "ucds", "serve", str(run), "--port", "0", "--accelerator", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Loopback(_wait_for_address(process), key)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_for_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines() or ["it wrote nothing"]
    raise ServiceUnavailableError(f"the label service did not start: {lines[-1]}")
