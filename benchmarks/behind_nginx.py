"""Runs nginx with the file of `deploy/` on this machine, and looks for bodies that it keeps on a disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost, and its key, in one file."""
    path = folder / "localhost.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    request += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(["openssl", *request], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def replaced(text: str, **words: str) -> str:
    """A text with some words replaced, all of which are there."""
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(folder: Path, port: int, *upstreams: str, **words: str) -> Iterator[tuple[Path, int]]:
    """Run nginx with the file as it is but for names and places: its certificate, and its process."""
    certificate = make_certificate(folder)
    given = {
        "user www-data;": "user root;" if os.geteuid() == 0 else "",
        "error_log syslog:server=unix:/dev/log warn;": f"error_log {folder}/nginx.log warn;",
        "access_log off;": "access_log off; "
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "labels.example.org": "localhost",
        "/etc/ssl/labels.pem": str(certificate),
        "/etc/ssl/private/labels.key": str(certificate),
        "server 127.0.0.1:8000 max_fails=0;": "".join(f"server {one} max_fails=0;" for one in upstreams),
    }
    settings = folder / "nginx.conf"
    settings.write_text(replaced((DEPLOY / "nginx.conf").read_text(), **given | words))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [program, "-p", str(folder), "-c", str(settings)]
    command += ["-g", f"daemon off; pid {folder}/nginx.pid;"]
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=60)
    master = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield certificate, master.pid
    finally:
        master.terminate()
        master.wait(30)


def files_with_a_body(master: int) -> list[str]:
    """Files that nginx has open in a folder for bodies; it unlinks them when it makes them."""
    found = []
    with contextlib.suppress(OSError):
        for worker in Path(f"/proc/{master}/task/{master}/children").read_text().split():
            for opened in Path(f"/proc/{worker}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found.append(str(opened.readlink()))
    return [name for name in found if "/body/" in name or "/proxy/" in name]
