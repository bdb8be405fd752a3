"""What holds for every test: one thread, a cache of its own, and no network but the machine itself."""

import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

# Before torch is imported: tests run side by side, and commands they start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np
import pytest
from PIL import Image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

Blobs = Callable[..., dict[str, np.ndarray[Any, np.dtype[np.float32]]]]


_ALL_OF_TORCH = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.torch\b", re.MULTILINE)


def _is_unwanted(path: Path, marks: str) -> bool:
    """Whether none of the tests of a file, or of the files of a folder, can be meant by these marks."""
    if path.is_dir():
        files = list(path.rglob("test_*.py"))
        return bool(files) and all(_is_unwanted(file, marks) for file in files)
    text = path.read_text("utf-8")
    if "not torch" in marks:
        return _ALL_OF_TORCH.search(text) is not None
    return marks.endswith("and torch") and "pytest.mark.torch" not in text


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what holds no test that is wanted: each of the workers pays for it."""
    is_test = collection_path.is_dir() or collection_path.name.startswith("test_")
    return True if is_test and _is_unwanted(collection_path, str(config.getoption("markexpr"))) else None


class NetworkUsedError(AssertionError):
    """A test reached for another machine."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def connect_nearby(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "localhost",
            "127.0.0.1",
            "::1",
        ):
            raise NetworkUsedError(f"a test connects to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_nearby)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "user-cache"))


def _blobs(sizes: Mapping[str, int], n_clusters: int = 4, width: int = 6, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(n_clusters, width))
    domains = {}
    for name, n in sizes.items():
        shift = 0.3 * rng.normal(size=width)
        noise = 0.5 * rng.normal(size=(n, width))
        domains[name] = (centres[np.arange(n) % n_clusters] + noise + shift).astype(np.float32)
    return domains


@pytest.fixture(scope="session")
def blobs() -> Blobs:
    """Vectors of several domains around shared centres; row ``i`` belongs to centre ``i % n_clusters``."""
    return _blobs


@pytest.fixture(scope="session")
def noise_image() -> Callable[..., Image.Image]:
    """Smooth noise of a seed and size."""

    def make(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
        coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)

    return make


@pytest.fixture(scope="session")
def write_images(noise_image: Callable[..., Image.Image]) -> Callable[..., list[Path]]:
    """Write images of noise, no two alike, under names relative to a folder, and return their paths."""

    def write(
        root: Path, names: Iterable[str], first_seed: int = 0, size: tuple[int, int] = (40, 30)
    ) -> list[Path]:
        paths = [root / name for name in names]
        for seed, path in enumerate(paths, first_seed):
            path.parent.mkdir(parents=True, exist_ok=True)
            noise_image(seed, size).save(path)
        return paths

    return write


@pytest.fixture(scope="session")
def stored_model() -> Callable[..., Any]:
    """Make a model with a random head and its card, as if trained."""
    from ucds.heads import Head
    from ucds.training.model_file import Making, ModelCard, StoredModel

    making = Making("consensus", {"starts": 2}, "auto", 7, "32-true", {"ucds": "0.1.0"})
    usual = {"role": "target", "name": "clinic", "domains": ("a", "b"), "stages": ("learn",), "tune": "head"}
    usual["making"] = making

    def make(encoder: Any, n_clusters: int, width: int, **card: Any) -> StoredModel:
        size = {"n_clusters": n_clusters, "bottleneck_width": width}
        described = ModelCard(**size, encoder=encoder.spec, weights=encoder.weights, **usual | card)
        rng, shapes = np.random.default_rng(0), ((width, encoder.spec.width), (width,), (width, n_clusters))
        weight, bias, prototypes = (rng.normal(0, 0.5, shape).astype(np.float32) for shape in shapes)
        head = Head(weight, bias / 5, prototypes, described.unit_features)
        shares = np.full((len(described.domains), n_clusters), 1 / n_clusters, np.float32)
        return StoredModel(described, head, encoder, shares)

    return make


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command in this process and return its exit status."""
    from ucds.cli import main

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["ucds", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call


@pytest.fixture(scope="module")  # no longer than its tests, for it runs an event loop in the main thread
def browser() -> Iterator[Any]:
    """A headless Chromium; without one on the machine the test is skipped."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # other tests run beside it

    with sync_playwright() as play:
        switches = ["--no-sandbox", "--enable-unsafe-swiftshader"]  # the map is drawn without a graphics card
        running = play.chromium.launch(executable_path=CHROMIUM, args=switches)
        yield running
        running.close()
