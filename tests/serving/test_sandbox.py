"""A confined process: what it can still do, and what it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ucds.serving.sandbox import can_confine

needs_landlock = pytest.mark.skipif(not can_confine(), reason="this kernel has no Landlock")

ATTEMPTS = """
import os, socket, sys
from pathlib import Path
from ucds.serving.sandbox import confine

secret, folder, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
kept = open(secret)
confine(map(Path, sys.path))

def attempt(name, work):
    try:
        work()
    except OSError as error:
        print(name, type(error).__name__)
    else:
        print(name, "done")

attempt("read", secret.read_bytes)
attempt("write", lambda: (folder / "new").write_text("x"))
attempt("list", lambda: list(folder.iterdir()))
attempt("parent", lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes())
attempt("memory", lambda: open(f"/proc/{os.getppid()}/mem", "rb"))
attempt("connect", lambda: socket.create_connection(("127.0.0.1", port)))
attempt("open file", kept.read)
import wave
print("module", wave.__name__)
"""


@needs_landlock
def test_a_confined_process_reads_modules_and_open_files_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "signing-key.pem"
    secret.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        command = [sys.executable, "-P", "-c", ATTEMPTS, str(secret), str(tmp_path), str(port)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = dict(line.rsplit(" ", 1) for line in said.splitlines())
    refused = {"read", "write", "list", "parent", "memory", "connect"}
    assert {name for name, word in found.items() if word == "PermissionError"} == refused
    assert (found["open file"], found["module"]) == ("done", "wave")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone")
def test_the_kernel_calls_a_process_that_hides_its_memory_not_dumpable() -> None:
    asked = 3  # PR_GET_DUMPABLE
    program = (
        "import ctypes; from ucds.serving.sandbox import hide_memory; libc = ctypes.CDLL(None); "
        f"before = libc.prctl({asked}); hide_memory(); print(before, libc.prctl({asked}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "0"], done.stderr
