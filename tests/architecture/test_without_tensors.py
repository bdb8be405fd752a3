"""Who asks for what learns by gradients where PyTorch is missing is told in one line what to install.

All else runs there: ``make test`` runs the tests that are not marked ``torch`` where it is not installed.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

HIDDEN = ("torch", "torchvision", "timm", "lightning_fabric", "onnx", "onnxscript", "pandas", "numba")
"""Packages that the plain installation does without."""


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these packages be found no more, as where they are not installed."""
    find = PathFinder.find_spec

    def find_others(name: str, *where: Any) -> Any:
        return None if name.partition(".")[0] in HIDDEN else find(name, *where)

    monkeypatch.setattr(PathFinder, "find_spec", find_others)
    for name in HIDDEN:
        monkeypatch.delitem(sys.modules, name, raising=False)


TARGET = ("train-target", "x.npy", "--clusters", "3", "--out", "run")
IMAGES = ("train-target", "images", "--clusters", "3", "--out", "run")
CROSSINGS = {
    "PCD": ("--method pcd", (*TARGET, "--method", "pcd")),
    "PCD of the provider": (
        "--method pcd",
        ("train-source", "x.npz", "--clusters", "3", "--out", "run", "--method", "pcd"),
    ),
    "a whole encoder": ("--tune full", (*IMAGES, "--method", "pcd", "--tune", "full")),
    "a network by its name": ("--backbone resnet18", (*IMAGES, "--backbone", "resnet18")),
    "a network in bulk": (
        "--backbone resnet18",
        ("features", "images", "--out", "run", "--backbone", "resnet18"),
    ),
    "a GPU": ("--accelerator cuda", (*TARGET, "--accelerator", "cuda")),
    "a benchmark": ("ucds benchmark", ("benchmark", "x.toml", "--data", "images", "--results", "run")),
    "a table": ("ucds table", ("table", "x.toml", "--results", "run")),
}
"""What asks for tensors: the words that the refusal begins with, and the command."""


@pytest.mark.parametrize(("words", "command"), CROSSINGS.values(), ids=CROSSINGS)
def test_who_asks_for_tensors_is_told_in_one_line_what_to_install(
    words: str,
    command: tuple[str, ...],
    run: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch)
    Path("images").mkdir()
    for i in range(6):
        Image.new("RGB", (32, 32), (40 * i, 0, 0)).save(f"images/{i}.png")
    np.save("x.npy", np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    np.savez("x.npz", a=np.load("x.npy"))
    Path("x.toml").touch()
    assert run(*command) == 2
    assert (
        "".join(capsys.readouterr()) == f"error: {words} needs further packages: pip install 'ucds[torch]'\n"
    )
    assert not Path("run").exists()


def test_public_names_of_networks_name_the_extra(anew: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HIDDEN:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("PCDLoss", "build_network", "NetworkEncoder", "module_encoder"):
        with anew():
            package, errors = import_module("ucds"), import_module("ucds.errors")
            with pytest.raises(
                errors.InputError, match=r"needs further packages: pip install 'ucds\[torch\]'$"
            ):
                getattr(package, name)
