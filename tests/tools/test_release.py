"""What `make release` makes of README and changelog; the wheel's own tests are in tests/packaging."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import release

README = (release.ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("address", [None, "https://example.org/ucds/"])
def test_no_link_of_the_readme_of_a_release_leads_nowhere(address: str | None) -> None:
    made = release.for_index(README, address)
    places = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", made)
    assert all(place.startswith("https://") for pair in places for place in pair if place)
    assert len(places) > 10 if address else not places
    assert "for providers" in made


def test_links_lead_to_the_version_at_the_address_of_the_project() -> None:
    text = 'See [the\npage](docs/a.md#b).\n<img alt="x"\nsrc="docs/x.png">\n[other](https://example.com)'
    made = release.for_index(text, "https://example.org/ucds")
    assert f"[the\npage](https://example.org/ucds/blob/v{release.version}/docs/a.md#b)" in made
    assert f'src="https://example.org/ucds/raw/v{release.version}/docs/x.png"' in made
    assert "[other](https://example.com)" in made


def test_a_version_without_a_section_in_the_changelog_is_not_released() -> None:
    changelog = "# Changelog\n\n## 0.2.0\n\n- New.\n\n## 0.1.0 - 2026-12-01\n\n- First.\n"
    assert release.changes(changelog, "0.2.0") == "## 0.2.0\n\n- New.\n"
    assert release.changes(changelog, "0.1.0") == "## 0.1.0 - 2026-12-01\n\n- First.\n"
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no section ## 0\.1: write"):
        release.changes("## 0.10\n", "0.1")
