"""The wheel, installed into a fresh environment without any extra: what it can do, and what it asks for.

The environment gets links to the packages that ucds requires, as the environment that runs the tests has
them, and to those that they require in turn. So torch is not installed a second time, and what only an extra
brings is absent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def required(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    """Collect a package and all that it requires."""
    package = distribution(name)
    found[name] = package
    for line in package.requires or ():
        needed = Requirement(line)
        wanted = needed.marker is None or any(
            needed.marker.evaluate({"extra": extra}) for extra in extras | {""}
        )
        if wanted and needed.name not in found:
            required(needed.name, frozenset(needed.extras), found)


def entries(package: Distribution) -> list[Path]:
    """Return the files and folders of a package that lie directly in its site-packages."""
    firsts = {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    return [Path(str(package.locate_file(first))) for first in firsts]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command ``ucds`` of an environment into which the wheel was installed without extras."""
    place = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", place / "project" / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "project")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", place]
    subprocess.run([*pip, *build, place / "project"], check=True, timeout=900)
    (wheel,) = place.glob("ucds-*.whl")
    venv.create(place / "fresh", symlinks=True)
    python = place / "fresh" / "bin" / "python"
    (site,) = (place / "fresh" / "lib").glob("python*/site-packages")
    found: dict[str, Distribution] = {}
    required("ucds", frozenset(), found)
    for package in (package for name, package in found.items() if name != "ucds"):
        for entry in entries(package):
            if not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    install = ["--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True, timeout=900)
    return place / "fresh" / "bin" / "ucds"


def run(program: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [program, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)


def succeed(program: Path, *arguments: object, cwd: Path) -> str:
    done = run(program, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def client(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with embeddings, and a model of them that the installed command has trained."""
    place = tmp_path_factory.mktemp("client")
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(3, 8))
    np.save(place / "vectors.npy", (centres[np.arange(60) % 3] + rng.normal(size=(60, 8))).astype(np.float32))
    np.savez(place / "domains.npz", a=centres[np.arange(60) % 3], b=centres[np.arange(60) % 3] + 1)
    succeed(program, "train-target", "vectors.npy", "--clusters", 3, "--out", "run", cwd=place)
    return place


def test_the_environment_has_no_package_of_an_extra(program: Path) -> None:
    absent = ("torch", "timm", "onnx", "pandas", "fastapi", "matplotlib", "skops", "datasets", "pytest")
    code = f"from importlib.util import find_spec; print([n for n in {absent} if find_spec(n)])"
    python = program.with_name("python")
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_public_name_loads_without_a_warning_or_needs_an_extra(program: Path) -> None:
    code = """
import ucds
for name in ucds.__all__:
    try:
        getattr(ucds, name)
    except ucds.InputError as missing:
        print(name, missing)
"""
    command = [program.with_name("python"), "-I", "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "serve the label service needs further packages: pip install 'ucds[serve]'\n" in done.stdout
    assert all("needs further packages: pip install 'ucds[" in line for line in done.stdout.splitlines())


def test_it_helps(program: Path, tmp_path: Path) -> None:
    assert "train-target" in succeed(program, "--help", cwd=tmp_path)
    assert succeed(program, "--version", cwd=tmp_path).startswith("ucds ")


def test_a_client_gets_model_report_and_predictions(program: Path, client: Path) -> None:
    assert (client / "run" / "report.html").stat().st_size > 10_000
    succeed(program, "report", "run", "--out", "page.html", cwd=client)
    assert "Content-Security-Policy" in (client / "page.html").read_text()
    succeed(program, "predict", "run", "vectors.npy", "--out", "clusters.csv", cwd=client)
    assert len((client / "clusters.csv").read_text().splitlines()) == 61


def test_a_provider_learns_and_labels(program: Path, client: Path) -> None:
    succeed(program, "train-source", "domains.npz", "--clusters", 3, "--out", "provider", cwd=client)
    succeed(program, "label", "provider", "vectors.npy", "--out", "labels.json", cwd=client)
    assert (client / "labels.json").exists()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve run", "serve"),
        ("keys add clinic --budget 5 --ledger ledger.sqlite", "serve"),
        ("ledger verify --ledger ledger.sqlite", "serve"),
        ("demo --out demo", "serve"),
        ("export run --format sklearn", "export"),
        ("train-source domains.npz --clusters 3 --out private --dp-epsilon 1", "privacy"),
        ("train-target scans --clusters 2 --out other", "dicom"),
        ("train-target phone --clusters 2 --out other", "heif"),
        ("train-target saved --clusters 2 --out other", "datasets"),
    ],
)
def test_what_needs_an_extra_says_which(program: Path, client: Path, command: str, extra: str) -> None:
    for folder, name in (("scans", "a.dcm"), ("phone", "a.heic"), ("saved", "dataset_info.json")):
        (client / folder).mkdir(exist_ok=True)
        (client / folder / name).write_bytes(b"{}")
    (client / "saved" / "state.json").write_text("{}")
    done = run(program, *command.split(), cwd=client)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'ucds[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
