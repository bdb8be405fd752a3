"""All but learning by gradients runs where neither PyTorch nor anything that comes with it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ucds

HIDDEN = ("torch", "torchvision", "timm", "lightning_fabric", "onnx", "onnxscript", "pandas", "numba")
"""Packages that the plain installation does without."""

_HIDING = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {HIDDEN} else find(name, path, target)
PathFinder.find_spec = find_spec
"""


def environment_without_tensors(folder: Path) -> dict[str, str]:
    """Return the environment of a process from which these packages are hidden, with a cache in a folder."""
    hiding = folder / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(_HIDING)
    path = os.pathsep.join((str(hiding), str(Path(ucds.__file__).parents[1])))
    return os.environ | {"PYTHONPATH": path, "UCDS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("what", ["both sides", pytest.param("demo", marks=pytest.mark.slow)])
def test_it_runs_without_tensors(what: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    environment = environment_without_tensors(tmp_path)
    program = [sys.executable, str(Path(__file__).parent / "run_without.py"), str(work), what]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.stdout.endswith("all of it\n"), done.stderr[-3000:]


TARGET = ("train-target", "x.npy", "--clusters", "3", "--out", "run")
IMAGES = ("train-target", "images", "--clusters", "3", "--out", "run")
CROSSINGS = {
    "PCD": ("--method pcd", (*TARGET, "--method", "pcd")),
    "PCD of the provider": (
        "--method pcd",
        ("train-source", "x.npz", "--clusters", "3", "--out", "run", "--method", "pcd"),
    ),
    "a whole encoder": ("--method pcd", (*IMAGES, "--method", "pcd", "--tune", "full")),
    "a network by its name": ("--backbone resnet18", (*IMAGES, "--backbone", "resnet18")),
    "a network in bulk": (
        "--backbone resnet18",
        ("features", "images", "--out", "run", "--backbone", "resnet18"),
    ),
    "a GPU": ("--accelerator cuda", (*TARGET, "--accelerator", "cuda")),
    "several processes": ("--method pcd", (*TARGET, "--method", "pcd", "--devices", "2")),
    "a benchmark": ("ucds benchmark", ("benchmark", "x.toml", "--data", "images", "--results", "run")),
    "a table": ("ucds table", ("table", "x.toml", "--results", "run")),
}
"""What asks for tensors: the words that the refusal begins with, and the command."""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, bool]]:
    """Exit status of each command where PyTorch is hidden, what it says, and whether it left anything."""
    folder = tmp_path_factory.mktemp("crossings")
    work, environment = folder / "work", environment_without_tensors(folder)
    (work / "images").mkdir(parents=True)
    for i in range(6):
        Image.new("RGB", (32, 32), (40 * i, 0, 0)).save(work / "images" / f"{i}.png")
    np.save(work / "x.npy", np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    np.savez(work / "x.npz", a=np.load(work / "x.npy"))
    (work / "x.toml").write_text("")
    found = {}
    for name, (_, command) in CROSSINGS.items():
        line = [sys.executable, "-m", "ucds", *command]
        done = subprocess.run(line, cwd=work, capture_output=True, text=True, env=environment)
        found[name] = done.returncode, done.stdout + done.stderr, (work / "run").exists()
    return found


@pytest.mark.parametrize("name", CROSSINGS)
def test_who_asks_for_tensors_is_told_in_one_line_what_to_install(
    name: str, refusals: dict[str, tuple[int, str, bool]]
) -> None:
    status, told, worked = refusals[name]
    words = CROSSINGS[name][0]
    assert told == f"error: {words} needs further packages: pip install 'ucds[torch]'\n"
    assert (status, worked) == (2, False)


@pytest.mark.parametrize("name", ["PCDLoss", "build_network", "NetworkEncoder", "module_encoder"])
def test_public_names_of_networks_name_the_extra(name: str, tmp_path: Path) -> None:
    program = f"import ucds\ntry: ucds.{name}\nexcept ucds.InputError as error: print(error)"
    environment = environment_without_tensors(tmp_path)
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert "needs further packages: pip install 'ucds[torch]'\n" in done.stdout
