"""A label service in a process of its own, on this machine: the wall as it stands in real use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ucds.errors import InputError
from ucds.labels.client import LabelClient
from ucds.labels.cluster_labels import ClusterLabels
from ucds.labels.query import query_labels
from ucds.labels.questions import open_questions

_READY = "listening on "


@dataclass(frozen=True)
class Loopback:
    """A running service and a key to it."""

    url: str
    key: str = field(repr=False)


def make_key(run: Path, holder: str, budget: int) -> str:
    """Let somebody ask about ``budget`` samples, and return the key."""
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
        UserError: the service did not start; what it said is part of the message.
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


def ask(service: Loopback, images: Path, out: Path) -> ClusterLabels:
    """Ask a service about a folder of images, as ``ucds query`` does."""
    with LabelClient(service.url, service.key) as client:
        return query_labels(client, open_questions(images), out)


def _wait_for_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    assert process.stderr is not None
    raise InputError(f"the label service did not start: {_last_line(process.stderr)}")


def _last_line(stream: IO[str]) -> str:
    return (stream.read().strip().splitlines() or ["it said nothing"])[-1]
