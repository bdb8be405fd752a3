"""Build the site from docs/, results/, benchmarks/ and the code, and refuse links that lead nowhere.

    python tools/build_site.py
    python -m http.server --directory build/site      # for the search; the pages also open from the disk

Pages are laid out in build/pages at the places that they have in the project, so that a link works on the
site and in the files alike. What is made of the code is written beside them. Nothing is fetched from
elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from site_pages import commands_page, notebook_page, records_page, settings_page

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
TAKEN = (
    "*.md",
    "CITATION.cff",
    "LICENSE",
    "docs/**/*.*",
    "examples/*.py",
    "src/ucds/**/*.py",
    "configs/*.toml",
    "benchmarks/*.*",
    "results/*.md",
    "results/*/*.svg",
)


def main() -> int:
    """Lay out the pages and build the site; return the exit status."""
    lay_out(PAGES)
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT
    ).returncode


def lay_out(pages: Path) -> None:
    """Copy the pages and what they link to, and write those that are made of other files.

    Args:
        pages: folder to lay out; what it held is removed.
    """
    shutil.rmtree(pages, ignore_errors=True)
    for path in (path for pattern in TAKEN for path in ROOT.glob(pattern)):
        place = pages / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            place.with_suffix(".md").write_text(notebook_page(path), encoding="utf-8")
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            place.write_text(text.replace(".ipynb)", ".md)"), encoding="utf-8")
        else:
            shutil.copyfile(path, place)
    made = {"commands": commands_page(), "settings": settings_page(), "records": records_page(ROOT)}
    for name, text in made.items():
        (pages / "docs" / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
