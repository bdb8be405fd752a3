"""The wheel, installed into a fresh environment without any extra: what it can do, and what it asks for.

The environment gets links to the packages that ucds requires, as the environment that runs the tests has
them, and to those that they require in turn. So torch is not installed a second time, and what only an extra
brings is absent.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from pages import commands

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
APART = ["unshare", "--map-root-user", "--net", "sh", "-e"]

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this clone."""
    place = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", place / "project" / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "project")
    build = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", place]
    subprocess.run([*PIP, *build, place / "project"], check=True, timeout=900)
    (wheel,) = place.glob("ucds-*.whl")
    return wheel


def install(wheel: Path, place: Path, *extras: str) -> Path:
    """Install the wheel into an environment of its own, and return the command ``ucds`` there."""
    venv.create(place / "fresh", symlinks=True)
    python = place / "fresh" / "bin" / "python"
    (site,) = (place / "fresh" / "lib").glob("python*/site-packages")
    found: dict[str, Distribution] = {}
    required("ucds", frozenset(extras), found)
    for package in (package for name, package in found.items() if name != "ucds"):
        for entry in entries(package):
            if not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    into = ["--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([*PIP, *into], check=True, timeout=900)
    return place / "fresh" / "bin" / "ucds"


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command ``ucds`` of an environment into which the wheel was installed without extras."""
    return install(wheel, tmp_path_factory.mktemp("alone"))


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


def test_a_client_gets_model_report_and_predictions(program: Path, client: Path) -> None:
    assert (client / "run" / "report.html").stat().st_size > 10_000
    succeed(program, "report", "run", "--out", "page.html", cwd=client)
    assert "Content-Security-Policy" in (client / "page.html").read_text()
    succeed(program, "predict", "run", "vectors.npy", "--out", "clusters.csv", cwd=client)
    assert len((client / "clusters.csv").read_text().splitlines()) == 61
    succeed(program, "export", "run", "--format", "hub", cwd=client)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("keys add clinic --budget 5 --ledger ledger.sqlite", "serve"),
        ("demo --out demo", "serve"),
        ("export run --format onnx", "export"),
        ("train-target scans --clusters 2 --out other", "dicom"),
        ("train-target phone --clusters 2 --out other", "heif"),
    ],
)
def test_what_needs_an_extra_says_which(program: Path, client: Path, command: str, extra: str) -> None:
    for folder, name in (("scans", "a.dcm"), ("phone", "a.heic")):
        (client / folder).mkdir(exist_ok=True)
        (client / folder / name).write_bytes(b"{}")
    done = run(program, *command.split(), cwd=client)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'ucds[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def draw(folder: Path, each: int, brightness: int) -> None:
    """Draw pictures of 31 kinds: two colours, and the width of a stripe."""
    rng = np.random.default_rng(brightness)
    for kind in range(31):
        (folder / str(kind)).mkdir(parents=True)
        colours = np.random.default_rng(kind).integers(0, 255, (2, 3))
        for number in range(each):
            pixels = np.broadcast_to(colours[0], (64, 64, 3)) * brightness // 255
            pixels = pixels + rng.integers(0, 20, (64, 64, 3))
            pixels[:, :: 2 + kind % 7] = colours[1]
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / str(kind) / f"{number}.png")


def lines_of(page: str) -> Iterator[str]:
    """Yield the commands of a tutorial as lines of a shell, which does itself what a person does."""
    for line in commands(ROOT / "docs" / "tutorials" / f"{page}.md"):
        if line.startswith("ucds serve "):
            yield f"{line} & trap 'kill $!' EXIT"
            yield 'python -c "$WAIT"'
        elif line.startswith("ucds keys add "):
            yield f"UCDS_KEY=$({line}); export UCDS_KEY"
        elif line == "ucds review mine":
            yield "python -c \"import ucds; r = ucds.Review('mine'); r.name(0, 'mugs'); r.finish()\""
        elif not line.startswith(("ucds export ", "ucds demo")):  # of another extra, and of other tests
            yield line


WAIT = """
import socket, time
for _ in range(600):
    try:
        socket.create_connection(("127.0.0.1", 8000)).close()
        break
    except OSError:
        time.sleep(0.1)
"""


def test_the_tutorials_run_to_the_end_without_a_network_or_pytorch(wheel: Path, tmp_path: Path) -> None:
    ucds = install(wheel, tmp_path / "env", "serve")
    for name, each, brightness in (("amazon", 3, 230), ("dslr", 2, 120), ("webcam", 2, 60)):
        draw(tmp_path / "office31" / name, each, brightness)
    lines = [line for page in ("provider", "client") for line in lines_of(page)]
    script = "\n".join(["ip link set lo up", *lines])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "UCDS"))}
    env |= {"PATH": f"{ucds.parent}:{env['PATH']}", "HOME": str(tmp_path), "WAIT": WAIT}
    apart = [*APART, "-c", script]
    done = subprocess.run(apart, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    for made in ("answers.json", "mine/report.html", "sorted", "next.csv", "audit.html"):
        assert (tmp_path / made).exists(), made
