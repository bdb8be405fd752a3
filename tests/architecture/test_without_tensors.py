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
from cli_kit import run_command

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


TARGET = "train-target x.npy --clusters 3 --out run"
IMAGES = "train-target images --clusters 3 --out run"
CROSSINGS = [
    ("--method pcd", f"{TARGET} --method pcd"),
    ("--method pcd", "train-source x.npz --clusters 3 --out run --method pcd"),
    ("--tune full", f"{IMAGES} --method pcd --tune full"),
    ("--backbone resnet18", f"{IMAGES} --backbone resnet18"),
    ("--backbone resnet18", "features images --out run --backbone resnet18"),
    ("--accelerator cuda", f"{TARGET} --accelerator cuda"),
    ("ucds benchmark", "benchmark x.toml --data images --results run"),
    ("ucds table", "table x.toml --results run"),
]
"""Words that a refusal begins with, and a command that asks for tensors."""


@pytest.mark.parametrize(("words", "line"), CROSSINGS)
def test_who_asks_for_tensors_is_told_in_one_line_what_to_install(
    words: str,
    line: str,
    write_images: Callable[..., list[Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch)
    write_images(tmp_path / "images", [f"{i}.png" for i in range(6)])
    np.save("x.npy", np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    np.savez("x.npz", a=np.load("x.npy"))
    Path("x.toml").touch()
    told = f"error: {words} needs further packages: pip install 'ucds[torch]'\n"
    assert run_command(*line.split()) == (2, "", told)
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
