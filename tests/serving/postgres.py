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


def find_programs() -> Path | None:
    """The folder of PostgreSQL's server programs."""
    places = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    found = shutil.which("initdb", path=os.pathsep.join([*places, os.environ["PATH"]]))
    return None if found is None else Path(found).resolve().parent


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server with an empty database; its address is given, and all is removed afterwards."""
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed here")
    user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", free_port()
        _run(user, programs / "initdb", "-D", data, "-U", "ucds", "--auth=trust", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        _run(user, programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://ucds@127.0.0.1:{port}/postgres"
        finally:
            _run(user, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then somebody else must."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


def _run(user: pwd.struct_passwd | None, *command: str | Path) -> None:
    who: Any = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", timeout=60, check=True, **who)
