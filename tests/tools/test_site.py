"""What the site is laid out from: pages that are made of the code, and a place for each page."""

import json
import re
import sys
from pathlib import Path

import pytest

import ucds

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import site_pages
from build_site import ROOT, lay_out
from docstring_roles import link_roles

from ucds.config import ConsensusSettings, PCDSettings


def test_every_page_has_a_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    named = set(re.findall(r"- (?:[\w ]+: )?([\w/.-]+\.md)$", navigation, re.MULTILINE))
    made = {f"docs/{name}.md" for name in ("commands", "settings", "records", "notebooks/tour")}
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert written | made <= named
    assert all((ROOT / page).exists() for page in named - made)


@pytest.mark.torch
def test_every_public_name_is_on_the_page_of_functions() -> None:
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE)
    public = {getattr(ucds, name) for name in ucds.__all__}
    listed = {getattr(sys.modules[path.rpartition(".")[0]], path.rpartition(".")[2]) for path in entries}
    assert listed == public


def test_the_pages_of_commands_settings_and_records_have_all_of_them() -> None:
    page = site_pages.commands_page()
    for command in ("train-source", "train-target", "keys add", "ledger verify", "table"):
        assert f"## `ucds {command}`" in page
    assert re.search(r"^\| `--clusters <str>` \| Number of clusters, K;", page, re.MULTILINE)

    page = site_pages.settings_page()
    for settings in (ConsensusSettings, PCDSettings):
        assert all(f"| `{name}` |" in page for name in settings.model_fields)
    page = site_pages.records_page(ROOT)
    assert page.count("](../results/") == len(list((ROOT / "results").glob("*.md")))
    assert page.count("](../benchmarks/") == len(list((ROOT / "benchmarks").glob("*.md")))


def test_a_notebook_becomes_a_page(tmp_path: Path) -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    drawn = {"output_type": "display_data", "data": {"image/png": "iVBOR\n", "text/plain": ["<Image>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Words."]},
        {"cell_type": "code", "source": ["print(1 + 1)"], "outputs": [printed, drawn]},
    ]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    assert site_pages.notebook_page(path) == (
        "# Title\nWords.\n\n```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n\n"
        "![drawn by the code above](data:image/png;base64,iVBOR)\n"
    )


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("see :func:`ucds.load` and", "see [`ucds.load`][ucds.training.loaded.load] and"),
        (":class:`~ucds.gradients.transport.Plan`", "`ucds.gradients.transport.Plan`"),
        ("``code`` stays", "``code`` stays"),
    ],
)
def test_roles_of_docstrings_become_links(text: str, linked: str) -> None:
    assert link_roles(text) == linked


def test_pages_are_laid_out_at_their_places(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    lay_out(pages)
    assert (pages / "docs" / "consensus.md").read_bytes() == (ROOT / "docs" / "consensus.md").read_bytes()
    assert (pages / "docs" / "notebooks" / "tour.md").exists()
    assert "(notebooks/tour.md)" in (pages / "docs" / "README.md").read_text()
    assert (pages / "examples" / "embeddings.py").exists()
    assert (pages / "docs" / "commands.md").exists()
