"""What the page for contributors says of the code is so."""

import importlib
import re

from pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_names_on_the_way_of_an_image_exist_in_their_order() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert rows
    for _, name, module in rows:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_the_files_of_the_recipes_exist() -> None:
    recipes = PAGE.partition("## Recipes")[2].partition("## Rules")[0]
    places = set(re.findall(r"`([\w/]+(?:\.py|/))`", recipes)) - {"baselines/NAME.py"}
    assert len(places) > 10
    assert not [
        place for place in places if not any((ROOT / above / place).exists() for above in (".", "src/ucds"))
    ]
