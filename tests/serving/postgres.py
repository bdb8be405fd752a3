"""A private PostgreSQL server on a free port, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving_kit import free_port


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server with an empty database; its address is given, and all is removed afterwards."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    places = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    found = shutil.which("initdb", path=os.pathsep.join([*places, os.environ["PATH"]]))
    if found is None:
        pytest.skip("no PostgreSQL server is installed here")
    programs, folder = Path(found).resolve().parent, Path(tempfile.mkdtemp(prefix="pg"))
    who: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root: then somebody else must
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def run(program: str, *options: str | Path) -> None:
        command = [programs / program, "-D", folder / "data", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", timeout=60, check=True, **who)

    try:
        run("initdb", "-U", "ucds", "--auth=trust", "--no-sync")
        port = free_port()
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        run("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://ucds@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
