"""Measures the memory that some work needs, in a process of its own."""

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

from ucds.errors import UserError

MOST_MIB = 500


def measure(work: Callable[[], object]) -> tuple[int, str]:
    """Do some work in a process of its own; return the MiB that it needed, and why it was refused."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            limit = 2**33  # for the machine's sake, if a size is believed
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
            before, said = _peak(), ""
            try:
                work()
            except UserError as refusal:
                said = str(refusal)
            except BaseException as error:
                said = f"FAULT {error!r}"
            os.write(writing, json.dumps([_peak() - before, said]).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        found = json.loads(answer.read() or b'[1000000, "FAULT: killed"]')
    os.waitpid(child, 0)
    return found[0], found[1]


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def check(work: Callable[[], object], said: str) -> None:
    """Make sure that some work needs little memory, and is refused in these words; not refused if empty."""
    needed, refusal = measure(work)
    assert not refusal.startswith("FAULT"), refusal
    assert needed <= MOST_MIB
    assert "\n" not in refusal
    assert said in refusal
    assert bool(said) == bool(refusal), refusal
