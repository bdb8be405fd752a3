"""Tests of downloads against a server of our own, and against addresses where nobody answers."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from ucds.backbones import downloads
from ucds.errors import UserError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    return folder


@pytest.fixture
def server(published: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(published)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    urllib.request.install_opener(
        urllib.request.build_opener()
    )  # urllib remembers the proxies of its first use


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_download_lands_in_the_cache_and_is_taken_from_there(server: str, published: Path) -> None:
    (published / "net.pth").write_bytes(b"weights")
    path = downloads.download_state_dict(f"{server}/net.pth", "net")
    assert path == Path(torch.hub.get_dir(), "checkpoints", "net.pth")
    assert path.read_bytes() == b"weights"
    assert downloads.download_state_dict(f"{unused_address()}/net.pth", "net") == path


def test_a_damaged_download_is_refused_and_not_kept(server: str, published: Path) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()[:8]
    (published / f"net-{digest}.pth").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"cannot download the weights of 'net' .*hash"):
        downloads.download_state_dict(f"{server}/net-{digest}.pth", "net")
    assert not list(Path(torch.hub.get_dir(), "checkpoints").iterdir())


def test_a_file_the_server_lacks_is_an_error_in_words(server: str) -> None:
    with pytest.raises(UserError, match=r"cannot download .* 404.*--weights FILE"):
        downloads.download_state_dict(f"{server}/nothing.pth", "net")


def test_any_answer_counts_as_reachable(server: str) -> None:
    downloads.require_reachable(f"{server}/no/such/page", "weights")


def test_a_closed_port_is_told_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(UserError, match=r"weights of x: not in the cache, .* refused.*--weights none"):
        downloads.require_reachable(unused_address(), "weights of x")
    assert time.perf_counter() - start < 5


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PROBE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match="cannot be reached"):
            downloads.require_reachable(address, "weights")
