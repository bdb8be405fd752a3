"""Seconds until a command shows its first line on a terminal, of the clock and of the processor.

Each command is started on a terminal of its own with inputs that do not exist. It shows at once that it
starts, loads its libraries, and refuses the inputs: so the end of the command says how long loading takes.
The commands take turns, and each is started several times.

    python benchmarks/start.py [--rounds 5] [--commands label,serve]
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PAGE = Path(__file__).with_suffix(".md")
ASKED = 2.0  # seconds to the first line that a command may take
_LONGEST = 300.0
COMMANDS: dict[str, str] = {
    "--help": "",
    "train-source": "nowhere --clusters 3 --out run",
    "label": "nowhere images --out labels.json",
    "serve": "nowhere",
    "keys list": "--ledger nowhere",
    "ledger verify": "--ledger nowhere",
    "features": "nowhere --out features",
    "audit": "nowhere --members a --others b --out audit.html",
    "query": "nowhere --url https://127.0.0.1:9 --key k --out labels.json",
    "train-target": "nowhere --clusters 3 --out run",
    "predict": "nowhere images --out clusters.csv",
    "report": "nowhere",
    "export": "nowhere",
    "evaluate": "nowhere data",
    "benchmark": "nowhere.toml --data data",
    "table": "nowhere.toml",
    "settings": "",
}


@dataclass(frozen=True)
class Start:
    """One start of a command.

    Attributes:
        first: seconds until something was shown.
        used: seconds of the processor until then, which other programs on the machine hardly prolong.
        answered: seconds until the command had ended.
    """

    first: float
    used: float
    answered: float


def start(words: Sequence[str], folder: Path) -> Start:
    """Start a command on a terminal of 80 columns, and wait until it has ended.

    Raises:
        SystemExit: it shows nothing, or does not end.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "UCDS_LEDGER": "nowhere"}
    begun, first, used = time.perf_counter(), None, 0.0
    process = subprocess.Popen(
        [sys.executable, "-m", "ucds", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        while read_from(ours, begun + _LONGEST - time.perf_counter()):
            if first is None:
                first, used = time.perf_counter() - begun, seconds_of(process.pid)
        process.wait(timeout=_LONGEST)
    finally:
        process.kill()
        os.close(ours)
    if first is None:
        raise SystemExit(f"ucds {' '.join(words)} shows nothing")
    return Start(first, used, time.perf_counter() - begun)


def seconds_of(process: int) -> float:
    """Return the seconds of the processor that a process has used, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_from(screen: int, seconds: float) -> bool:
    """Wait until a program has written to its terminal; return whether it has not ended yet."""
    if not select.select([screen], [], [], max(seconds, 0))[0]:
        return False
    try:
        return bool(os.read(screen, 65536))
    except OSError:  # the program has closed the terminal
        return False


def measure(names: Sequence[str], rounds: int) -> dict[str, list[Start]]:
    """Start every command so many times, one after the other, after one start that is not counted."""
    found: dict[str, list[Start]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for name in names:
                once = start([*name.split(), *COMMANDS[name].split()], Path(folder))
                if number:
                    found[name].append(once)
    return found


def page(found: dict[str, list[Start]], load: float) -> str:
    """Write the table of all commands."""
    rounds = len(next(iter(found.values())))
    lines = [
        "# Starting a command",
        "",
        "Made by `python benchmarks/start.py`; not edited by hand.",
        "",
        f"Each command was started {rounds} times on a terminal, with inputs that do not exist: it shows "
        "that it starts, loads its libraries, and refuses the inputs. Medians in seconds, and the slowest "
        f"first line. Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} processors; "
        f"load average {load:.1f} at the start. Aim: a first line after {ASKED:g} seconds at most.",
        "",
        "| command | first line | slowest first line | processor until then | inputs refused |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, starts in found.items():
        first = [one.first for one in starts]
        used, answered = (
            median(values) for values in zip(*((s.used, s.answered) for s in starts), strict=True)
        )
        row = (name, median(first), max(first), used, answered)
        lines.append("| `ucds {}` | {:.2f} | {:.2f} | {:.2f} | {:.2f} |".format(*row))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="starts of each command that are counted")
    parser.add_argument("--commands", type=lambda text: text.split(","), default=list(COMMANDS))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    text = page(measure(options.commands, options.rounds), load)
    print(text)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
