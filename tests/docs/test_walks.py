"""The pages for beginners are followed word by word: every command is run, and every piece of code.

Those of provider and client are followed where only the wheel is installed, in ``tests/packaging``.

Small drawn pictures stand in for the photographs; random weights, in the hub's cache, for the published ones
of the encoders; a graph of a few nodes for DINOv2. In place of a person, :class:`ucds.Review` names a cluster
and finishes.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_kit import repository, transformer
from pages import ROOT, Block, blocks
from picture_kit import dicom
from PIL import Image
from safetensors.torch import save_file

import ucds

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]

LEFT_OUT = ("ucds demo",)  # its own tests run it
ADDRESS = "http://127.0.0.1:8000"
DINOV2 = {"size": {"shortest_edge": 28}, "crop_size": 24, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}


def picture(kind: int, rng: np.random.Generator, brightness: int) -> Image.Image:
    """Draw stripes whose colours, width and direction tell the kind, on a ground that tells the domain."""
    colour = np.random.default_rng(kind).integers(256, size=3)
    pixels = np.full((64, 64, 3), brightness)
    pixels[(np.arange(64) + rng.integers(9)) % (4 + kind) < 3] = colour
    pixels = pixels.transpose(1, 0, 2) if kind % 2 else pixels
    return Image.fromarray(np.clip(pixels + rng.normal(0, 9, pixels.shape), 0, 255).astype(np.uint8))


def draw(folder: Path, kinds: int, each: int, brightness: int) -> None:
    rng = np.random.default_rng(brightness)
    for kind in range(kinds):
        (folder / f"thing_{kind:02}").mkdir(parents=True)
        for number in range(each):
            picture(kind, rng, brightness).save(folder / f"thing_{kind:02}" / f"frame_{number:04}.jpg")


def shorten(grid: Path, copy: Path) -> None:
    """Copy a published grid with one seed, one target and two methods."""
    text = grid.read_text(encoding="utf-8")
    for name, values in (("seeds", "[0]"), ("targets", '["webcam"]'), ("methods", '["kmeans", "consensus"]')):
        text = re.sub(rf"(?m)^{name} = \[[^\]]*\]$", f"{name} = {values}", text, count=1)
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the pages take for granted."""
    import timm
    import torchvision  # type: ignore[import-untyped]

    root = tmp_path_factory.mktemp("inputs")
    for domain, each, brightness in (("amazon", 2, 230), ("dslr", 2, 120), ("webcam", 2, 60)):
        draw(root / "office31" / domain, 31, each, brightness)
    for name, brightness in (("hospitals/north", 200), ("hospitals/south", 90), ("clinic-images", 30)):
        draw(root / name, 12, 3, brightness)
    grid = "configs/office31-head-consensus.toml"
    shorten(ROOT / grid, root / grid)
    for name in ("IMAGES", "PHOTOS"):
        draw(root / name, 5, 8, 100)
    (root / "STUDIES").mkdir()
    rng = np.random.default_rng(0)
    for number in range(40):
        scan = dicom(rng.integers(4096, size=(64, 64)).astype(np.uint16), BitsStored=12, HighBit=11)
        (root / "STUDIES" / f"{number}.dcm").write_bytes(scan)
    vectors = (3 * rng.normal(size=(10, 8)))[np.arange(120) % 10] + rng.normal(size=(120, 8))
    arrays = {"provider": vectors, "hospital": np.arange(120) // 10 % 2, "client": vectors[:60] + 1}
    np.savez(root / "embeddings.npz", **arrays)
    save_file(timm.create_model("mobilenetv2_100").state_dict(), root / "mobilenetv2.safetensors")
    save_file(torchvision.models.squeezenet1_1().state_dict(), root / "squeezenet1_1.safetensors")
    repository(root / "dinov2-small", transformer("pooler_output"), DINOV2)
    return root


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the hub with random weights of the encoders that the pages name."""
    import timm

    root = tmp_path_factory.mktemp("hub")
    for network in ("mobilenetv2_100", "resnet18"):
        model = timm.create_model(network)
        owner, name = model.pretrained_cfg["hf_hub_id"].split("/")
        place = root / f"models--{owner}--{name}"
        (place / "refs").mkdir(parents=True)
        (place / "refs" / "main").write_text("0" * 40)
        (place / "snapshots" / ("0" * 40)).mkdir(parents=True)
        save_file(model.state_dict(), place / "snapshots" / ("0" * 40) / "model.safetensors")
    dinov2 = root / "models--Xenova--dinov2-small"
    (dinov2 / "refs").mkdir(parents=True)
    (dinov2 / "refs" / "main").write_text("0" * 40)
    repository(dinov2 / "snapshots" / ("0" * 40), transformer("pooler_output"), DINOV2)
    return root


class Walk:
    """Follows pages in a folder that holds links to the inputs."""

    def __init__(
        self,
        place: Path,
        run: Callable[..., int],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.place, self._run, self._capsys, self._monkeypatch = place, run, capsys, monkeypatch
        self.names: dict[str, Any] = {"__name__": "page"}
        self.service: subprocess.Popen[str] | None = None
        self.followed: list[str] = []
        self._words = {"K": "3"}

    def follow(self, page: Path) -> None:
        """Do what a page says, from its beginning to its end."""
        for block in blocks(page):
            self.followed.append(block.text)
            if block.file:
                (self.place / block.file).write_text(block.text)
            elif block.language == "python":
                exec(compile(block.text, str(page), "exec"), self.names)
            elif not block.language and not block.text.startswith(LEFT_OUT):
                self._do(block)

    def _do(self, block: Block) -> None:
        line = block.text
        for word, value in self._words.items():
            line = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", value, line)
        words = shlex.split(line)
        if words[0] == "export":
            self._monkeypatch.setenv(*words[1].split("=", 1))
        elif words[0] == "find":
            found = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
            assert (found.returncode, found.stderr) == (0, ""), line
        elif words[:2] == ["ucds", "serve"]:
            self._serve(words[2:])
        elif words[:2] == ["ucds", "review"] and len(words) == 3:
            self._review(self.place / words[2])
        else:
            self._call(line, words)

    def _call(self, line: str, words: list[str]) -> None:
        if "=" in words[0]:
            self._monkeypatch.syspath_prepend(str(self.place))
            words = words[1:]
        status = self._run(*words[1:])
        out, err = self._capsys.readouterr()
        assert status == 0, f"{line}\n{err}"
        if words[1:3] == ["keys", "add"]:
            self._words["KEY"] = out.strip()

    def _serve(self, words: list[str]) -> None:
        command = [sys.executable, "-m", "ucds", "serve", *words, "--port", "0"]
        self.service = subprocess.Popen(command, cwd=self.place, stdout=subprocess.PIPE, text=True)
        assert self.service.stdout is not None
        self._words[ADDRESS] = self.service.stdout.readline().split()[-1]

    def _review(self, run: Path) -> None:
        """Name a cluster and finish, as a person does on the page."""
        review = ucds.Review(run)
        review.name(0, "mugs")
        review.finish()


@pytest.fixture
def walk(
    inputs: Path,
    hub: Path,
    run: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Walk]:
    """A walk in a folder of its own, with the random weights in the hub's cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))  # for the processes of a benchmark
    monkeypatch.chdir(tmp_path)
    for entry in inputs.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    walk = Walk(tmp_path, run, capsys, monkeypatch)
    yield walk
    if walk.service is not None:
        walk.service.terminate()
        walk.service.wait(timeout=60)


def test_the_tutorial_of_the_researcher(walk: Walk) -> None:
    walk.follow(ROOT / "docs" / "tutorials" / "researcher.md")
    results = walk.place / "my-results"
    assert len((results / "webcam" / "runs.jsonl").read_text().splitlines()) == 10
    assert len((results / "mine" / "runs.jsonl").read_text().splitlines()) == 4
    assert not any("missing" in page.read_text() for page in results.glob("*.md"))


def test_readme(walk: Walk) -> None:
    walk.follow(ROOT / "README.md")
    assert (walk.place / "my-results" / "office31-head-consensus.md").exists()
    assert len(list((walk.place / "sorted").rglob("*.jpg"))) == 40


@pytest.mark.parametrize("name", ["start", "inputs", "encoders", "python"])
def test_the_pages_for_users(walk: Walk, name: str) -> None:
    walk.follow(ROOT / "docs" / f"{name}.md")
    assert len(walk.followed) > 1
