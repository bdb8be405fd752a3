"""What code can do that has taken over a decoder: with Landlock alone, with seccomp alone, and with both."""

import json
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from multiprocessing.connection import Pipe
from pathlib import Path

import httpx
import pytest
from serving_kit import FakeImageLabeller, running

from ucds.data.confinement import CALLS, has_seccomp, landlock_version, weakness
from ucds.serving.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
MEANS = {"Landlock alone": "has_seccomp", "seccomp alone": "landlock_version", "both": ""}
"""Column of the table, and the function that finds what this column does without."""

TAKEN_OVER = """
import ctypes, errno, json, os, socket, sys, threading
from pathlib import Path
from ucds.data.decode import UnusableImageError
from ucds.data import confinement
from ucds.data import sandbox

number, port, victim = map(int, (sys.argv[1], *sys.argv[4:]))
missing, folder = sys.argv[2], Path(sys.argv[3])
secret, libc = folder / "signing-key.pem", ctypes.CDLL(None, use_errno=True)
native = os.uname().machine == "x86_64"

def call(x86_64, aarch64, *arguments):
    if libc.syscall(x86_64 if native else aarch64, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def send(family, kind, address):
    with socket.socket(family, kind) as made:
        made.connect(address)
        made.send(b"x")

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def thread():
    threading.Thread(target=int).start()

TRIES = {
    "read Python's modules": lambda: Path(socket.__file__).read_bytes(),
    "read a file": secret.read_bytes,
    "list its folder": lambda: list(folder.iterdir()),
    "read the service's memory": lambda: open(f"/proc/{victim}/mem", "rb").close(),
    "make a file": lambda: (folder / "new").touch(),
    "change a file": lambda: secret.open("ab").close(),
    "delete a file": lambda: (folder / "spare").unlink(),
    "change a file's mode": lambda: secret.chmod(0o666),
    "change its owner": lambda: os.chown(secret, os.getuid(), os.getgid()),
    "connect by TCP": lambda: send(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
    "send by UDP": lambda: send(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
    "connect to a Unix socket": lambda: send(socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "socket")),
    "make a pair of sockets": lambda: socket.socketpair(),
    "send a signal": lambda: os.kill(victim, 0),
    "trace the service": lambda: call(101, 117, 0x4206, victim, 0, 0),
    "set the service's limits": lambda: call(302, 261, victim, 7, 0, 0),
    "mount": lambda: call(165, 40, b"none", str(folder).encode(), b"none", 0, None),
    "use the keyring": lambda: call(250, 219, 0, -3, 0),
    "set up io_uring": lambda: call(425, 425, 0, 0),
    "start a process": fork,
    "start a thread": thread,
}

def attempt(work):
    try:
        work()
    except OSError as error:
        return "refused" if error.errno in (errno.EPERM, errno.EACCES) else "possible"
    except RuntimeError:
        return "refused"
    return "possible"

def decode_image(data, *arguments, **named):
    found = {name: attempt(work) for name, work in TRIES.items()} if data else {}
    raise UnusableImageError("image", json.dumps(found))

sandbox.decode_image = decode_image
if missing:
    setattr(sandbox if missing == "confine" else confinement, missing, lambda *given: 0)
sandbox.main(number, 8, 60.0, 2**29, 9, [])
"""


def take_over(folder: Path, missing: str) -> dict[str, str]:
    """What code in a decoder can do, by its name, where one means of confinement is missing."""
    folder.mkdir(mode=0o700)
    for name in ("signing-key.pem", "spare"):
        (folder / name).write_text("secret")
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(str(folder / "socket"))
        local.listen()
        victim = stack.enter_context(subprocess.Popen(["sleep", "60"]))
        stack.callback(victim.kill)
        ours, theirs = map(stack.enter_context, Pipe())
        told = theirs.fileno(), missing, folder, tcp.getsockname()[1], victim.pid
        command = [sys.executable, "-P", "-c", TAKEN_OVER, *map(str, told)]
        decoder = stack.enter_context(subprocess.Popen(command, pass_fds=[theirs.fileno()]))
        stack.callback(decoder.kill)
        theirs.close()
        assert ours.recv_bytes() == b"\0"
        ours.send_bytes(b"an image")
        return dict(json.loads(ours.recv_bytes()[1:]))


def rows_of_the_page() -> dict[str, list[str]]:
    """The table of the page on operating, by what is tried."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    start = next(number for number, row in enumerate(cells) if row[1:] == list(MEANS))
    rows = [row for row in cells[start + 2 :] if len(row) == len(MEANS) + 1]
    return {name: row[1:] for row in rows for name in row[0].split("; ")}


@pytest.mark.skipif(landlock_version() < 6 or not has_seccomp(), reason="this kernel lacks a means")
def test_a_decoder_that_was_taken_over_can_do_what_the_page_says(tmp_path: Path) -> None:
    free = take_over(tmp_path / "free", "confine")
    found = {name: take_over(tmp_path / name, missing) for name, missing in MEANS.items()}
    said = rows_of_the_page()
    assert said.keys() == free.keys()
    for column, name in enumerate(MEANS):
        for what, cells in said.items():  # what this user or kernel never can is no news
            assert found[name][what] == (cells[column] if free[what] == "possible" else "refused"), what
    modules = found["both"].pop("read Python's modules")
    assert modules == "possible"
    assert set(found["both"].values()) == set(found["seccomp alone"].values()) == {"refused"}


def test_the_numbers_of_calls_are_those_of_the_kernels_headers() -> None:
    headers = ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")
    for column, name in enumerate(headers):
        header = Path("/usr/include", name)
        if not header.exists():
            pytest.skip(f"{header} is not installed here")
        known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
        for call, *numbers in map(str.split, CALLS.split(",")):
            assert numbers[column] == (known.get(call) or known[call.removeprefix("new")]), (name, call)


def test_the_operator_is_told_where_a_means_is_missing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing, words in (("landlock_version", "no Landlock,"), ("has_seccomp", "no seccomp,")):
        with monkeypatch.context() as patched:
            patched.setattr(f"ucds.data.confinement.{missing}", lambda: 0)
            assert words in weakness()
    monkeypatch.setattr("ucds.data.confinement.has_seccomp", lambda: 0)
    with running(FakeImageLabeller(), ledger) as service:
        assert "no seccomp," in httpx.get(f"{service.ops}/readyz").raise_for_status().text
