"""Makes a release in dist/, up to the upload: `make release` runs it with the tools of the environment.

    python tools/release.py

What is committed is built; its version is that of ``src/ucds/__init__.py``. The wheel is installed into a
fresh environment of the pinned packages, and runs the demo there. dist/ then holds the wheel, the source
archive, a list of the packages in that environment (CycloneDX) and the SHA-256 of each of these files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from ucds import __version__ as version
from ucds.files import digest_of

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
DIST, WORK = ROOT / "dist", ROOT / "build" / "release"

_PICTURE = re.compile(r"<img\b[^>]*>\n?")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?!https?:|mailto:|#)(?P<place>[^)\s]+)\)")


def main() -> None:
    """Build, check, install and try the version; nothing is uploaded."""
    notes = changes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if f"version: {version}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        sys.exit(f"CITATION.cff names another version than {version}")
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
    wheel = build(committed_source())
    run(BIN / "twine", "check", "--strict", *DIST.iterdir())
    fresh = install(wheel)
    run(fresh / "ucds", "demo", "--out", WORK / "demo")
    sbom = DIST / f"ucds-{version}.cdx.json"
    run(BIN / "cyclonedx-py", "environment", fresh.parent, "--output-reproducible", "--output-file", sbom)
    sums = [f"{digest_of(path.read_bytes())}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    print(notes, *sums, sep="\n")
    print(f"ucds {version} is ready: tag v{version}, then upload with twine upload dist/*.whl dist/*.tar.gz")


def committed_source() -> Path:
    """Unpack what is committed, with a README for a package index."""
    source, archive = WORK / "source", WORK / "source.tar"
    source.mkdir(parents=True)
    run("git", "-C", ROOT, "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = source / "README.md"
    address = project.get("urls", {}).get("Repository")
    readme.write_text(for_index(readme.read_text(encoding="utf-8"), address), encoding="utf-8")
    return source


def for_index(text: str, address: str | None) -> str:
    """Make the links of a README lead to the version at the project's address.

    Args:
        text: README, whose links are relative.
        address: ``Repository`` of ``[project.urls]``; ``None`` if there is none, so that links become their
            text and pictures are left out.
    """
    if address is None:
        return _LINK.sub(r"\g<text>", _PICTURE.sub("", text))
    place = f"{address.rstrip('/')}/{{}}/v{version}/"
    text = re.sub(r'(<img\b[^>]*?src=")(?!https?:)', rf"\g<1>{place.format('raw')}", text)
    return _LINK.sub(lambda found: f"[{found['text']}]({place.format('blob')}{found['place']})", text)


def changes(changelog: str, version: str) -> str:
    """Return the section of a version from the changelog; end with one line if there is none."""
    found = re.search(rf"^## \[?{re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section ## {version}: write what changed for users")
    return found[0].strip() + "\n"


def build(source: Path) -> Path:
    """Build the source archive, and from it the wheel; return the wheel."""
    run(BIN / "python", "-m", "build", "--outdir", DIST, source)
    (wheel,) = DIST.glob("*.whl")
    if f"-{version}-" not in wheel.name:
        sys.exit(f"{wheel.name} is not version {version}: commit what you want to release")
    return wheel


def install(wheel: Path) -> Path:
    """Install the wheel with what the demo needs into a fresh environment; return its folder of programs."""
    programs = WORK / "fresh" / "bin"
    run(BIN / "python", "-m", "venv", programs.parent)
    pip = programs / "pip"
    run(pip, "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[serve]")
    run(pip, "check")
    return programs


def run(*command: str | Path) -> None:
    """Run a program outside the project's folder; end with its status if it fails."""
    if subprocess.run([str(word) for word in command], cwd=WORK if WORK.exists() else ROOT).returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
