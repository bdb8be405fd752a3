"""Tests of weights: every usual wrapping is read, misfits are refused, downloads tell what is wrong."""

import argparse
import hashlib
import re
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from memory_kit import measure
from torch import Tensor, nn

from ucds.encoders.hub import require_reachable
from ucds.errors import UserError
from ucds.files import write_sealed
from ucds.gradients.checkpoint import read_checkpoint
from ucds.networks import weight_files
from ucds.networks.weight_files import load_file, read_state_dict

pytestmark = pytest.mark.torch


def network(width: int = 3) -> nn.Module:
    """A small backbone whose classifier was removed."""
    return nn.Sequential(nn.Conv2d(1, width, 1), nn.BatchNorm2d(width), nn.Flatten())


@pytest.fixture
def state() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {key: torch.rand_like(value.float()) for key, value in network().state_dict().items()}


def save(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": {f"module._orig_mod.{key}": value for key, value in state.items()}},
        lambda state: {**state, "fc.weight": torch.zeros(9, 3), "head.fc.bias": torch.zeros(9)},
        lambda state: {**state, "module.projection_head.0.weight": torch.zeros(9, 3)},
        lambda state: {key: value.double() for key, value in state.items()},
        lambda state: {key: value for key, value in state.items() if key != "1.num_batches_tracked"},
    ],
)
def test_usual_wrappings_are_read(
    wrap: Callable[[dict[str, Tensor]], object], state: dict[str, Tensor], tmp_path: Path
) -> None:
    module = network()
    origin = load_file(module, save(wrap(state), tmp_path / "weights.pth"), "small")
    assert re.fullmatch(r"file: weights\.pth \(sha256 [0-9a-f]{12}\)", origin)
    for key, value in module.state_dict().items():
        assert torch.equal(value, state[key].to(value.dtype))


@pytest.mark.parametrize(
    ("width", "missing", "more", "words"),
    [
        (3, "0.weight", (), r"'small': 1 weights missing in the file \(0\.weight\)"),
        (3, "", ("3.weight", "3.bias"), r"2 weights unknown to the network \(3\.weight, 3\.bias\)"),
        (4, "", (), r"0\.weight: file \(3, 1, 1, 1\), network \(4, 1, 1, 1\), .*3 more"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_loaded(
    width: int, missing: str, more: tuple[str, ...], words: str, state: dict[str, Tensor], tmp_path: Path
) -> None:
    module = network(width)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    state.pop(missing, None)
    path = save(state | dict.fromkeys(more, torch.zeros(2)), tmp_path / "weights.pth")
    with pytest.raises(UserError, match=words):
        load_file(module, path, "small")
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_an_older_format_is_adapted_or_reported_as_it_is(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = save({f"old.{key}": value for key, value in state.items()}, tmp_path / "weights.pth")
    module = network()
    load_file(module, path, "small", adapt=lambda module, old: {key[4:]: old[key] for key in old})
    assert torch.equal(module.state_dict()["0.weight"], state["0.weight"])

    def failing(module: nn.Module, old: dict[str, Tensor]) -> dict[str, Tensor]:
        raise KeyError("patch_embed")

    with pytest.raises(UserError, match=r"unknown to the network \(old\.0\.weight"):
        load_file(network(), path, "small", failing)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "weights.jpg"])
@pytest.mark.parametrize("content", [b"", b"no weights at all, just words\n" * 9, bytes(range(256)) * 9])
def test_other_files_are_refused_in_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="not a checkpoint") as refusal:
        read_state_dict(tmp_path / name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"there is no weights file .*weights\.pth"),
        ([torch.zeros(2)], "holds a list"),
        ({"epoch": 3}, "holds no weights .*epoch"),
        ({}, "keys: none"),
        ({"args": argparse.Namespace(lr=0.1)}, "pickled Python objects .* save its state dict alone"),
    ],
)
def test_files_without_named_weights_are_refused(content: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    if content is not None:
        save(content, path)
    with pytest.raises(UserError, match=message):
        read_state_dict(path)


def test_packed_tensors_are_measured_before_they_are_unpacked(tmp_path: Path) -> None:
    whole, packed = save({"a": torch.zeros(20 * 2**20)}, tmp_path / "whole.pth"), tmp_path / "packed.pth"
    with (
        zipfile.ZipFile(whole) as plain,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
    write_sealed(tmp_path / "checkpoint.pt", "ucds-checkpoint/1", packed.read_bytes())
    for read in (lambda: read_state_dict(packed), lambda: read_checkpoint(tmp_path)):
        needed, refusal = measure(read)
        assert "it names more tensors than it holds" in refusal
        assert needed < 50


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the files in ``published``."""
    (tmp_path / "published").mkdir()
    served = partial(Silent, directory=str(tmp_path / "published"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it remembers the proxies of its first use


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_download_lands_in_the_cache_and_is_taken_from_there(server: str, tmp_path: Path) -> None:
    (tmp_path / "published" / "net.pth").write_bytes(b"weights")
    path = weight_files.download_weights(f"{server}/net.pth", "net")
    assert path == Path(torch.hub.get_dir(), "checkpoints", "net.pth")
    assert path.read_bytes() == b"weights"
    assert weight_files.download_weights(f"{unused_address()}/net.pth", "net") == path


def test_a_damaged_download_and_one_that_is_not_there_are_refused_and_not_kept(
    server: str, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()[:8]
    (tmp_path / "published" / f"net-{digest}.pth").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"cannot download net-.*, the weights of 'net', .*hash"):
        weight_files.download_weights(f"{server}/net-{digest}.pth", "net")
    with pytest.raises(UserError, match=r"cannot download .* 404.*as `weights`"):
        weight_files.download_weights(f"{server}/nothing.pth", "net")
    assert not list(Path(torch.hub.get_dir(), "checkpoints").iterdir())


def test_any_answer_counts_as_reachable_and_a_closed_port_is_told_at_once(server: str) -> None:
    require_reachable(f"{server}/no/such/page", "weights", "copy it")
    start = time.perf_counter()
    with pytest.raises(UserError, match=r"x is not in the cache, .* refused.*; copy it"):
        require_reachable(unused_address(), "x", "copy it")
    assert time.perf_counter() - start < 5
